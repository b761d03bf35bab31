import pytest

from kwire.launch.properties import load_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# comment\n! another\n   # third\n\n", {}),
        ("a=1", {"a": "1"}),
        ("a = 1 \r\nb:2\rc 3\n", {"a": "1 ", "b": "2", "c": "3"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a : = b", {"a": "= b"}),
        ("a=1\na=2", {"a": "2"}),
        ("log.dirs=/tmp/a,\\\n    /tmp/b", {"log.dirs": "/tmp/a,/tmp/b"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=\\\n# not a comment", {"a": "# not a comment"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\u00e9\\t\\q\\n", {"a": "é\tq\n"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
    ],
)
def test_lines_mean_what_they_mean_to_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u 123"])
def test_a_broken_unicode_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="four hexadecimal"):
        parse_properties(text)


def test_a_file_is_latin_1_and_its_name_stands_in_the_error(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "server.properties"
    path.write_bytes(b"name=caf\xe9\n")
    assert load_properties(str(path)) == {"name": "café"}
    path.write_bytes(b"name=\\u1\n")
    with pytest.raises(ValueError, match=r"server\.properties"):
        load_properties(str(path))
