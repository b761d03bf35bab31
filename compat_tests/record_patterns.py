"""Asks re2j, which Kafka 4 matches transactional ids with, what it makes of many patterns, and writes it down.

    .venv/bin/python -m compat_tests.record_patterns

tests/data/re2-patterns.json: the subjects, and for each pattern "refused" or a digit for each subject, 1 if it matches
as a whole.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from compat_tests import tooling

DATA = Path(__file__).parent.parent / "tests" / "data" / "re2-patterns.json"
SUBJECTS = [
    "",
    " ",
    *r"""
a
b
ab
ba
aa
aaa
abab
A
AB
a.b
a-b
payments-1
payments-22
x{1}
x{
1
12
_
é
É
ſ
K
]
^
\
-
a]
[
(a)
a+b
**
日本
a1_
{,2}
aab
abb
c
ac
bc
""".strip("\n").splitlines(),
    "\t",
    "\n",
    "a\n",
    "a\nb",
    "\nb",
]
PATTERNS = [
    *r"""
a
ab*
(a|b)+
(?:a|b)+
a|b|
|
()
(a)(b)\1
\1
\12
\8
\0
\07
\101
a(?=b)
a(?!b)
(?<=a)b
(?<!a)b
(?>a)
(?#x)a
(?P<n>a)(?P=n)
(?P<n>a)(?P<n>b)
(?<n>a)b
(?P<1n>a)
(?P<>a)
(?'n'a)
a**
a*+
a++
a*?
a+?b
a??
a???
a{2}
a{2,}
a{1,2}
a{,2}
{,2}
a{2}{3}
a{2}*
a{2}?
a{1001}
a{1000}
a{2,1}
x{1}
x\{1\}
x{
a{
a{a}
*
+a
?a
(*a)
a|*
^*
^*a
$*
\b+
\ba\b
\Ba
^a$
^a
a$
a\z
a\Z
\Aa
\A*a
(?m)a$
a.b
(?s)a.b
(?s:a.)b
(?i)ab
a(?i)b
a(?i)b|ba
(a(?i)b)a
(?i:a)b
(?i)a(?-i)b
(?-i)a
(?i-s:A)
(?U)a+
(?U:a+)b
(?iU)A
(?i-U)A
(?)
(?:)
(?-)a
(?-:a)
(?x)a
(?u)a
(?a)a
(?L)a
(?i
(?i:a
(a
a)
[a
[a-
[]a]+
[^]a]
[a-]
[-a]
[a-b-c]+
[b-a]
[a\-b]+
[\d]+
[\D]
[^\d]
[\w-]+
[\w-a]+
[a-\d]
[\s]
\s
\S
[\S]
\d+
\w+
\W
[[:alpha:]]+
[[:^alpha:]]
[[:word:]]+
[[:foo:]]
[:alpha:]
[[:alpha:]-z]+
[[a]+
[[:d:]]
[\]]
[\\]
[&&a]
[a||b]+
\pL
\p{Greek}
\PL
\Q**\E
\Qa+b
\Qa+b\E
\Qab\E+
\Q\E
\Q\Ea
\E
[\Qa\E]
\C
\x61
\x{61}
\x{110000}
\x6
\x{}
\_
\-
\.
\e
\y
\k<n>
\g1
\G
\h
\R
\X
\N
\
\é
é
(?i)É
(?i)k
(?i)ſ
(?i)s
.*
.+
payments-\d
payments-[0-9]+
payments-.*
(payments)-(1|22)
((a){500}){3}
(a{1000}){1000}
\a
\f
\n
\r
\t
\v
[\b]
[\z]
[\n]
(?P=n)
(?(1)a|b)
(?R)
(?|a|b)
(?i)(?-i)
a|(?i)b|c
(?i)[^a]
(?i)[a]
[[:upper:]]
(?i)[[:upper:]]
[^\x00-\x{10FFFF}]
[\x{10000}-\x{10FFFF}]
((((a))))
a(b|c
(?P<n>a
(?P<é>a)
(?P<n
(?P
(?
(
)
[
[]
[^]
[^
]
}
{
{1}
a{1
a{1,
a{99999999999}
a{1,99999999999}
a{00002}
a{01}
a{0}
a{1,02}
""".strip("\n").splitlines(),
    "(?m)^a$\nb",
    "(?m:a$)\nb",
    "a\nb",
]


def main() -> None:
    source = tooling.HERE / "java" / "Re2Patterns.java"
    version = tooling.KAFKA_BROKER_4
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in (("patterns", PATTERNS), ("subjects", SUBJECTS)):
            text = "".join(line.encode().hex() + "\n" for line in lines)
            (Path(folder) / name).write_text(text)
        argv = [tooling.java(), "-cp", tooling.java_program(source, version), source.stem, folder]
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    results = dict(zip(PATTERNS, said.splitlines(), strict=True))
    DATA.write_text(json.dumps({"subjects": SUBJECTS, "patterns": results}, indent=0) + "\n")
    print(f"{len(results)} patterns in {DATA}")


if __name__ == "__main__":
    main()
