# SPDX-License-Identifier: Apache-2.0
"""Settings: the keys of `tacit info options`, by their whole names or by short ones."""
import ctypes
import difflib
import functools
import os

from . import _table
from ._library import ConfigError, check, expect, expect_path, lib

# Where a short name is looked up, after the sections of the chosen strategy and codec.
SECTIONS = ("compress", "adapt", "exchange", "comm", "optim")


def list_names(kind):
    """Returns [(name, what it does)] of what is built in: one of _table.LIST_..."""
    name, text, found = ctypes.c_char_p(), ctypes.c_char_p(), []
    while lib.tacit_list(kind, len(found), ctypes.byref(name), ctypes.byref(text)):
        found.append((name.value.decode(), (text.value or b"").decode()))
    return found


@functools.lru_cache(maxsize=None)
def options():
    """Returns [(key, what it does)] of all settings."""
    return list_names(_table.LIST_OPTIONS)


def write_value(value):
    """Returns a Python value as the library reads it."""
    if getattr(value, "ndim", None) == 0:  # numpy's
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def name_kind(section):
    """Returns the keyword that makes the library read a section."""
    for kind, word in ((_table.LIST_STRATEGIES, "strategy"), (_table.LIST_CONTROLLERS, "policy")):
        if section in (name for name, _ in list_names(kind)):
            return word
    return "codec"


def read_word(word):
    """Returns a key as the library writes it."""
    expect(isinstance(word, str), "a key of settings", word, "a text")
    return word.replace("__", ".")


class Settings:
    """Says what is exchanged, and how.

    Settings(strategy="gossip", topology="aer")
    Settings({"compress.codec": "topk", "topk.values": "int4"}, factor=20)
    Settings("run.yaml", codec="int4")          a file, and what differs from it

    Keys are those of `python -m tacit info`. A short name is the last part of one: it belongs to the section of the
    strategy, of the codec, or to compress, adapt, exchange, comm or optim, in this order; "section.key", or section__key
    as a keyword, leaves no doubt. Raises ConfigError, with the nearest key that exists."""

    def __init__(self, *sources, **words):
        self._handle = ctypes.c_void_p()
        self._keys = [key for key, _ in options()]
        check(lib.tacit_settings_create(ctypes.byref(self._handle)))
        for source in sources:
            if isinstance(source, dict):
                self._set_words(source)
            elif source is not None:
                expect_path("a source of settings", source, "a dictionary, or the path of a YAML file,")
                check(lib.tacit_settings_file(self._handle, os.fsencode(source)))
        self._set_words(words)

    @classmethod
    def of(cls, settings):
        """Returns them, or, of None, all defaults."""
        expect(settings is None or isinstance(settings, cls), "settings", settings, "a tacit.Settings")
        return settings or cls()

    def _set_words(self, words):
        for word in sorted(words, key=self._order_word):
            if words[word] is not None:
                self[word] = words[word]

    @staticmethod
    def _order_word(word):
        """Strategy and codec first: they say what short names mean."""
        key = read_word(word)
        return 0 if key == "strategy" else 1 if key in ("codec", "compress.codec", "policy", "adapt.policy") else 2

    def find_key(self, word):
        """Returns the whole name of a short one."""
        word = read_word(word)
        if word in self._keys or "." in word:
            return word
        for section in (self["strategy"], self["compress.codec"], self["adapt.policy"]) + SECTIONS:
            if f"{section}.{word}" in self._keys:
                return f"{section}.{word}"
        ends = [key for key in self._keys if key.endswith("." + word)]
        if len(ends) > 1:
            raise ConfigError(f"{word}: it may be {', '.join(ends)}; write the whole key, as {ends[0].replace('.', '__')}=...")
        if not ends:
            raise ConfigError(f"unknown setting {word}" + self._suggest(word))
        section = ends[0].partition(".")[0]
        raise ConfigError(f"{word} is {ends[0]}, which nothing reads here: add {name_kind(section)}=\"{section}\", or leave it out")

    def _suggest(self, word):
        ends = {key.rpartition(".")[2]: key for key in self._keys}
        near = difflib.get_close_matches(word, ends, 1, 0.5)
        return f"; did you mean {ends[near[0]]}?" if near else "; python -m tacit info lists them"

    def __setitem__(self, word, value):
        text = f"{self.find_key(word)}={write_value(value)}"
        expect("\0" not in text, word, value, "a text without the character 0")
        check(lib.tacit_settings_set(self._handle, text.encode(errors="surrogatepass")))

    def __getitem__(self, key):
        text = ctypes.create_string_buffer(_table.VALUE_BYTES)
        check(lib.tacit_settings_get(self._handle, read_word(key).encode(), text, len(text)))
        return text.value.decode()

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle:
            lib.tacit_settings_destroy(handle)
