#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/pages.py PROGRAM: what pages list is what the program has, and links between pages resolve. Run from the root by tests/pages.sh.

The registries are read from `tacit info --all --json`, `tacit --help`, CMakePresets.json and src/report/metrics.c, so a new member needs no
change here: it must be named where LISTS says, and a name that no registry has is an error.
"""
import glob
import json
import os
import re
import subprocess
import sys

PAGES = sorted(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] + glob.glob("docs/*.md") + glob.glob("docs/results/*.md"))
# What may stand behind a section's name and a dot without being a key: suffixes of files, folders of old runs.
NO_KEYS = {"md", "json", "jsonl", "sh", "py", "yaml", "npy", "csv", "svg", "bin", "txt", "safetensors", "old1", "old2"}
problems = []


def complain(page, text):
    problems.append("%s: %s" % (page, text))


def read(page):
    with open(page) as file:
        return file.read()


def program(*words):
    return subprocess.check_output([sys.argv[1], *words], text=True)


def names(entries):
    return {entry if isinstance(entry, str) else entry["name"] for entry in entries}


# ---- lists ----------------------------------------------------------------------------------------------------------


def first_cells(page, heads):
    """Names between backticks in the first cells of the tables whose first head is one of `heads`."""
    found, inside = set(), False
    for line in read(page).splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        if not cells:
            inside = False
        elif not inside and cells[0].strip() in heads:
            inside = True
        elif inside:
            found |= set(re.findall(r"`([^` ]+)`", cells[0]))
    return found


def check_list(what, page, found, registry, elsewhere=frozenset()):
    for name in sorted(registry - found - elsewhere):
        complain(page, "no row for %s %s" % (what, name))
    for name in sorted(found - registry):
        complain(page, "there is no %s %s" % (what, name))


def check_lists(info):
    topologies = names(info["topologies"])
    check_list("strategy", "README.md", first_cells("README.md", {"strategy"}) - topologies, names(info["strategies"]))
    for strategy in sorted(names(info["strategies"]) - set(re.findall(r"`(\w+)`", re.search(r"\*\*strategy\*\*.*", read("docs/glossary.md")).group()))):
        complain("docs/glossary.md", "strategy %s is not among the strategies" % strategy)
    check_list("codec", "docs/codecs.md", first_cells("docs/codecs.md", {"codec"}), names(info["codecs"]), first_cells("docs/codecs.md", {"format"}))
    check_list("controller", "docs/adaptive.md", first_cells("docs/adaptive.md", {"policy"}), names(info["controllers"]))
    check_list("topology", "docs/topologies.md", first_cells("docs/topologies.md", {"name"}), topologies)
    check_list("model preset", "docs/model.md", first_cells("docs/model.md", {"`model.preset`"}), names(info["presets"]))
    check_list("compute profile", "docs/profile.md", first_cells("docs/profile.md", {"preset"}), names(info["profiles"]))
    check_list("metric", "docs/metrics.md", first_cells("docs/metrics.md", {"key"}), metrics())
    presets = json.loads(read("CMakePresets.json"))["configurePresets"]
    listed = re.search(r"^Presets: ([^.]*)\.", read("CONTRIBUTING.md"), re.M)
    check_list("CMake preset", "CONTRIBUTING.md", set(re.findall(r"`([^`]+)`", listed.group(1))) if listed else set(),
               {preset["name"] for preset in presets if not preset.get("hidden")})
    codes = re.search(r"exit codes: (.*)", program("--help")).group(1)
    rows = re.findall(r"^\| (\d) \|", read("docs/stopping.md"), re.M)
    check_list("exit code", "docs/stopping.md", set(rows), set(re.findall(r"\d", codes)))


def metrics():
    """Keys of a step's line."""
    text = read("src/report/metrics.c")
    lines = text[text.index("static size_t put_figures"):]
    return set(re.findall(r'\\"(\w+)\\":', lines.split("event_line")[0])) | set(re.findall(r'^ +\{(?:m->\w+ >= 0 \? )?"(\w+)"(?:,| :) (?:NULL|")', lines, re.M))


# ---- keys and their values ------------------------------------------------------------------------------------------


def check_keys(info):
    """Every key that a page names is an option or a section's prefix, and every value given to a choice is one. Pages of results name
    the keys of the commit that they measured."""
    options = {option["key"]: option for option in info["options"]}
    registries = [names(info[topic]) for topic in ("codecs", "controllers", "strategies", "topologies")]
    sections = {key.split(".")[0] for key in options if "." in key}
    described = glob.glob("src/cluster/cluster_*.c") + glob.glob("src/model/profile*.c")
    assert len(described) > 2, described
    fields = {"compute." + field for field in re.findall(r'"(\w+)"', " ".join(map(read, described)))} # of cluster files and profiles
    sections |= set(re.findall(r'^    \{"([\w-]+)\.', read("src/base/option_old.c"), re.M))
    for page in (page for page in PAGES if not page.startswith("docs/results/")):
        text = read(page)
        for section, name in re.findall(r"(?<![\w./*-])(?:--)?(%s)\.([a-z]\w+)\b(?!\()" % "|".join(sections), text):
            if section + "." + name not in set(options) | fields and name not in NO_KEYS:
                complain(page, "there is no key %s.%s" % (section, name))
        # Behind a flag, behind an = or between backticks a word is the key's value; in other prose it is only the next word.
        spelled = r"(?:--({0})[ =]|(?<![\w.])({0})=|`({0}) )([a-z][\w|-]*)".format("|".join(map(re.escape, options)))
        for match in re.finditer(spelled, text):
            key = next(filter(None, match.groups()[:3]))
            listed = set(options[key].get("choices", ()))
            legal = listed.union(*(registry for registry in registries if registry & listed)) # names for reference are not listed
            for choice in set(match.group(4).split("|")) - legal if listed else ():
                complain(page, "%s has no value %s" % (key, choice))


# ---- links and sections ---------------------------------------------------------------------------------------------


def anchors(page):
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)", text, re.M)}


def check_links():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
            if re.match(r"https?:", target):
                continue
            path, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(path):
                complain(page, "%s does not exist" % target)
            elif anchor and anchor not in anchors(path):
                complain(page, "%s has no section #%s" % (path, anchor))


def check_sections():
    """A section that a page of results names is one of the script that the page names first."""
    for page in glob.glob("docs/results/*.md"):
        text = read(page)
        script = re.search(r"scripts/results/\w+\.sh", text)
        known = set(re.findall(r"^section_(\w+)\(", read(script.group()), re.M)) if script else set()
        for words in re.findall(r"\bSections?\s((?:`\w+`(?:,\s|\sand\s)?)+)", text):
            for name in set(re.findall(r"\w+", words)) - known - {"and"}:
                complain(page, "%s has no section %s" % (script.group() if script else "no script", name))


def main():
    info = json.loads(program("info", "--all", "--json"))
    check_lists(info)
    check_keys(info)
    check_links()
    check_sections()
    print("\n".join(problems))
    return 1 if problems else 0


sys.exit(main())
