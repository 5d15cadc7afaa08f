#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An independent GPT-2 tokenizer, and the fixtures that the C one is compared with.

    python3 tests/parity/bpe_reference.py tests/parity/bpe       # writes the fixtures, deterministically

Written from the description of the algorithm: the regular expression itself cuts the text (with character classes
from unicodedata, as Python's re has no \\p), and merging scans for the lowest rank and rewrites the whole word, which is
slow and obviously right. Invalid UTF-8 becomes one lone surrogate per byte, which is neither letter, number nor space.

  words/     vocabulary trained here on a few languages; hard strings
  shuffled/  random rules in an order no training gives: a rule's sides may be made by later rules, or by several
"""
import json
import pathlib
import random
import re
import sys
import unicodedata

TEXT = """
The quick brown fox jumps over the lazy dog. She'll say we're here; they've gone, I'm sure he'd agree that it isn't so.
A gradient is a vector of partial derivatives; the step that follows it downhill is the learning rate times that vector.
for (size_t i = 0; i < count; i++) sum += values[i] * values[i];   // 12345 67890 3.14159 1e-5 0x7fff
The workers exchange what they have learnt and the slowest of them decides how long the others are waiting for it.
Der schnelle braune Fuchs springt über den faulen Hund. Größe, Maß und Übermut tun selten gut. Straße, süß, Äpfel.
Le garçon naïf a mangé des crêpes à l'hôtel, où l'élève lisait déjà. Ça va? L'œuvre est là.
Быстрая лиса прыгает через ленивую собаку. Это простой текст для обучения, и он повторяет слова: текст, слова, лиса.
天地玄黄宇宙洪荒。日月盈昃辰宿列张。学习学习再学习。人之初性本善。
素早い茶色の狐がのろまな犬を飛び越える。これはテストです。カタカナとひらがな。
الثعلب البني السريع يقفز فوق الكلب الكسول. هذا نص للتعلم وفيه كلمات كثيرة.
빠른 갈색 여우가 게으른 개를 뛰어넘는다. 이것은 시험입니다.
तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है।
🙂🙂 👍🏽 👩‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ 🙂
""" * 2

HARD = [
    "", " ", "  ", "   ", "a", " a", "  a", "a ", "a  ", "\n", "\n\n", " \n a", "\r\n", "a\r\nb\r\n", "\t\tx", "\x00", "a\x00b", "\x00\x00 \x00",
    "Hello, world!", "Hello,  world!  ", "The quick brown fox", "don't won't can't", "DON'T", "I'm I've I'll I'd he's we're", "'s", "''s", "'S", "'re'll",
    "'r", "'l", "'v", "'", "x'", " 's", "''", "!'s", "a's'", "'sentence", "'tis", "rock 'n' roll", "'d've", "’s it’s",
    "1234567890", "a1b2c3", "3.14159", "x²+y³", "½ ¼ Ⅷ ⅷ ①②③", "٠١٢٣٤٥٦٧٨٩ १२३ ๑๒๓ 一二三 𝟘𝟙𝟚 𒐀",
    "naïve café", "nai\u0308ve cafe\u0301", "e\u0301\u0302\u0303\u0304", "\u0301\u0301", " \u0301a", "Z̷̡a̶l̴g̸o̷",
    "🙂", "🙂🙂🙂", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷🇺🇸", "a🙂b", " 🙂 ", "❤️", "☂︎☂️", "\U0001F9D1\U0001F3FE\u200D\U0001F680",
    "天地玄黄", " 天地 玄黄 ", "学习AI学习", "これはテストです。", "ｆｕｌｌ　ｗｉｄｔｈ１２３", "한국어 시험", "\u1112\u1161\u11ab", "𠀀𠀁 𪜀",
    "الثعلب البني", "مرحبا بالعالم ١٢٣", "عَرَبِيّ", "שָׁלוֹם עולם", "\u202eabc\u202c", "\u200f\u200e", "हिन्दी क्षत्रिय", "ภาษาไทย", "தமிழ்", "ქართული", "ᏣᎳᎩ",
    "a\u00a0b", "\u00a0\u00a0", "\u00a0a", " \u00a0 a", "a\u2003b\u2009c\u202fd\u205fe\u3000f", "\u1680x", "\u180ex", "\u200bx", "\ufeffx", "\u2028\u2029",
    "\x85x", "\x0b\x0cx", "\x1cx\x1dx\x1ex\x1fx", " \x1c a", "a \u3000 b", "x\u00ad y", "tab\t tab \tx", "end   \n", "end\n   ", "  \n  \n  x",
    "<|endoftext|>", "a<|endoftext|>b", "if (x != y) { return x->z[3] * -1; }", "http://example.org/?q=%20&a=b#c", "$1,234.56", "#!/bin/sh\n", "\\n\\t",
    "Straße STRASSE ŉ ǆ ﬁ İi̇", "Ʃ ʰ ˆ ªº ͡", "ᵃᵇᶜ ₁₂₃ ⁴⁵⁶", "\u0e33\u0eb3", "𝓗𝓮𝓵𝓵𝓸", "\U0010fffd\ue000", "\ufffd", "\uffff\ufdd0", "\u0378",
    "word " * 30, "a" * 100, "ab" * 77, " " * 100, "é" * 40, "🙂" * 25, "0" * 64, "." * 99, "\n" * 33, "x " * 20 + "  ", "The" * 33,
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
]

BROKEN = [
    b"\x80", b"\xff", b"a\xffb", b" \xff", b"\xc3", b"\xc3 ", b"caf\xc3", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe2\x82", b"\xe2\x82 x", b"\xe2\x28\xa1",
    b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\x9f\xbf", b"\xf0\x9f\x98", b"\xf0\x9f\x98a", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf5\x80\x80\x80",
    b"\xf8\x88\x80\x80\x80", b"\xfe\xfe\xff\xff", b"\xa0\xa1\xa2", b"x\xa0y", b"\xef\xbb\xbfbom", b"\xef\xbf", b"'\xff", b"'s\xff", b"\xc3\xa9\xc3", b"\xc2\x85\xc2",
    b"\xc2\xa0\xc2", b"  \xe3\x80\x80\xe3\x80", bytes(range(256)), bytes(range(255, -1, -1)), b"\x00\xff" * 20, b"\xf0\x9f\x99\x82\xf0\x9f\x99",
]


def byte_characters():
    """The printable character that shows each byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    table = {b: chr(b) for b in plain}
    table.update({b: chr(256 + i) for i, b in enumerate(rest)})
    return table


SHOWN = byte_characters()


def character_class(wanted):
    """The inside of a [...] of the code points that `wanted` says yes to."""
    parts, start = [], None
    for code in range(0x110001):
        inside = code < 0x110000 and wanted(code)
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            parts.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(parts)


def is_space(code):
    return chr(code).isspace() and not 0x1C <= code <= 0x1F  # White_Space has no separators of information


L = character_class(lambda c: unicodedata.category(chr(c)).startswith("L"))
N = character_class(lambda c: unicodedata.category(chr(c)).startswith("N"))
S = character_class(is_space)
PATTERN = re.compile(f"'s|'t|'re|'ve|'m|'ll|'d| ?[{L}]+| ?[{N}]+| ?[^{S}{L}{N}]+|[{S}]+(?![^{S}])|[{S}]+")


def pieces(data):
    text = data.decode("utf-8", "surrogateescape")
    found = PATTERN.findall(text)
    assert "".join(found) == text
    return [piece.encode("utf-8", "surrogateescape") for piece in found]


def merge_word(symbols, ranks):
    while len(symbols) > 1:
        best = min(zip(symbols, symbols[1:]), key=lambda pair: ranks.get(pair, float("inf")))
        if best not in ranks:
            break
        merged, i = [], 0
        while i < len(symbols):
            if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == best:
                merged.append(symbols[i] + symbols[i + 1])
                i += 2
            else:
                merged.append(symbols[i])
                i += 1
        symbols = merged
    return symbols


def encode(data, vocab, ranks):
    ids = []
    for piece in pieces(data):
        ids += [vocab[symbol] for symbol in merge_word([SHOWN[b] for b in piece], ranks)]
    return ids


def train(data, merges):
    words = [[SHOWN[b] for b in piece] for piece in pieces(data)]
    rules = []
    for _ in range(merges):
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        rules.append(best)
        words = [merge_word(word, {best: 0}) for word in words]
    return rules


def vocabulary(rules):
    tokens = [SHOWN[b] for b in range(256)]
    for left, right in rules:
        if left + right not in tokens:
            tokens.append(left + right)
    tokens.append("<|endoftext|>")
    return {token: i for i, token in enumerate(tokens)}


def shuffled_rules(rng):
    tokens, rules = ["a", "b", "c"], []
    while len(rules) < 60:
        rule = (rng.choice(tokens), rng.choice(tokens))
        if rule in rules or len(rule[0] + rule[1]) > 6:
            continue
        rules.append(rule)
        if rule[0] + rule[1] not in tokens:
            tokens.append(rule[0] + rule[1])
    rng.shuffle(rules)
    return rules


def write(folder, rules, cases):
    folder.mkdir(parents=True, exist_ok=True)
    vocab = vocabulary(rules)
    ranks = {rule: i for i, rule in enumerate(rules)}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    lines = "".join(f"{left} {right}\n" for left, right in rules)
    (folder / "merges.txt").write_text("#version: 0.2\n" + lines, encoding="utf-8")
    rows = [json.dumps({"hex": case.hex(), "ids": encode(case, vocab, ranks)}) for case in cases]
    (folder / "cases.json").write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1])
    rng = random.Random(1)
    alphabet = "ab cé1'\n🙂\u3000天.st\u00a0"
    mixed = ["".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 40))) for _ in range(60)]
    soup = [bytes(rng.choice(b"\xe2\x82\xac\xf0\x9f a'\xc2\xa0s1") for _ in range(30)) for _ in range(40)]
    cases = [text.encode() for text in HARD + mixed] + BROKEN + soup + [TEXT.encode()]
    write(folder / "words", train(TEXT.encode(), 500), cases)
    words = ["".join(rng.choice("abc") for _ in range(rng.randrange(1, 60))) for _ in range(150)]
    write(folder / "shuffled", shuffled_rules(rng), [word.encode() for word in words])


if __name__ == "__main__":
    main()
