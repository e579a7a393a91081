"""Reads C and CUDA sources as text: what a file defines for others, which names it uses, and where
its functions begin and end. No compiler: it works on any checkout, .cu files too. Caller:
tools/check_dead."""

import os
import re

SUFFIXES = (".c", ".h", ".cu", ".cuh")
NAME = re.compile(r"\b[A-Za-z_]\w*")
# Words that stand before a parenthesis without being the function's name.
NOT_NAMES = re.compile(r"(__\w+|alignas|noexcept|decltype|sizeof|_Alignas|_Static_assert|[A-Z][A-Z0-9_]*)$")


def blank(match):
    """The same number of lines without content."""
    return "\n" * match.group().count("\n") or " "


def strip(text):
    """The text without comments and without what stands in quotes; lines keep their numbers."""
    pattern = r'//(?:\\\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    return re.sub(pattern, lambda m: '""' if m.group()[0] == '"' else blank(m), text, flags=re.S)


def without_directives(text):
    """The text without preprocessor lines, continued ones included. Of `#if ... #else` the first
    branch stays: both together need not have balanced braces."""
    out, skipping, depth, continued = [], [], 0, False
    for line in text.split("\n"):
        directive = line.lstrip()
        if continued or directive.startswith("#"):
            if not continued:
                word = re.match(r"#\s*(\w*)", directive).group(1)
                if word in ("if", "ifdef", "ifndef"):
                    depth += 1
                elif word in ("else", "elif") and (not skipping or skipping[-1] < depth):
                    skipping.append(depth)
                elif word == "endif":
                    if skipping and skipping[-1] == depth:
                        skipping.pop()
                    depth -= 1
            continued = line.endswith("\\")
            out.append("")
        else:
            out.append("" if skipping else line)
    return "\n".join(out)


class Function:
    def __init__(self, name, line, lines, parameters, static):
        self.name, self.line, self.lines = name, line, lines
        self.parameters, self.static = parameters, static


class Source:
    """One file: `functions` defined in it, `defines` (names others can link to), `uses` (every name
    in its code; of a header only what its functions use, not what it declares)."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            raw = f.read()
        text = strip(raw)
        self.path = path
        self.includes = re.findall(r'^\s*#\s*include\s*"([^"]+)"', raw, flags=re.M)
        self.functions, self.defines = [], set()
        self.header = path.endswith((".h", ".cuh"))
        self.uses = set() if self.header else set(NAME.findall(text))
        self._items(without_directives(text))

    def _items(self, text):
        """Walks what stands outside every brace: declarations, definitions, functions."""
        start, depth, head = 0, 0, None
        for m in re.finditer(r"[{};]", text):
            c, at = m.group(), m.start()
            if c == "{":
                if depth == 0:
                    head = text[start:at]
                    if re.search(r'\b(extern\s*""|namespace(\s+\w+)?)\s*$', head):
                        start, head = at + 1, None
                        continue  # its content is outside too
                depth += 1
            elif c == "}":
                if depth == 0:
                    start = at + 1
                    continue  # the end of extern "C" or of a namespace
                depth -= 1
                if depth == 0 and self._function(text, start, head, at):
                    start, head = at + 1, None
            elif depth == 0:
                self._variable(text[start:at])
                start = at + 1

    def _function(self, text, start, head, end):
        found = parameter_list(head)
        if found is None:
            return False
        name, at, parameters = found
        start += len(head) - len(head.lstrip())
        line = text.count("\n", 0, start) + 1
        static = re.search(r"\b(static|BRIM_HD)\b", head[:at]) is not None
        self.functions.append(
            Function(name, line, text.count("\n", start, end) + 1, count(parameters), static))
        if self.header:
            self.uses.update(NAME.findall(text, start, end))
        elif not static and "template" not in head:
            self.defines.add(name)
        return True

    def _variable(self, item):
        head = item.split("{")[0]
        if self.header or re.match(r"\s*(static|typedef|extern|using|_Static_assert|static_assert)\b", head):
            return
        m = re.search(r"\b([A-Za-z_]\w*)\s*(\[[^\]]*\]\s*)*=\s*$", head) if "{" in item else None
        m = m or re.match(r"[\w\s*]+?\b([A-Za-z_]\w*)\s*(\[[^\]]*\]\s*)*(=.*)?$", head, re.S)
        if m and re.search(r"\w[\s*]", head[: m.start(1)].lstrip() or ""):
            if "(" not in head.split("=")[0] and not re.match(r"\s*(struct|enum|union)\s+\w+\s*$", head):
                self.defines.add(m.group(1))


def parameter_list(head):
    """The name of the function that `head` begins, where it stands, and its parameters; None for
    anything else."""
    depth, at = 0, 0
    for i, c in enumerate(head):
        if c == "(":
            if depth == 0:
                at = i
            depth += 1
        elif c == ")":
            depth -= 1
            if depth == 0:
                m = re.search(r"([A-Za-z_]\w*)\s*(<[^<>()]*>)?\s*$", head[:at])
                if m and not NOT_NAMES.match(m.group(1)):
                    return m.group(1), m.start(1), head[at + 1 : i]
        elif c == "=" and depth == 0:
            return None
    return None


def count(parameters):
    """How many parameters; those after `...` have no name and count for nothing."""
    depth, parts = 0, [""]
    for c in parameters:
        depth += (c in "([<{") - (c in ")]>}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return len([p for p in parts if p.strip() not in ("", "void", "...")])


def files(root, *tops):
    """Every source below the folders, in order."""
    for top in tops:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    yield os.path.join(folder, name)
