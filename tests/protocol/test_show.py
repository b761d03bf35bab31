"""Generated code can be read: in tracebacks, by inspect, and by `python -m kwire.protocol.show`."""

from __future__ import annotations

import inspect
import textwrap
import traceback
from collections import Counter
from pathlib import Path

import pytest

from kwire.protocol import show
from kwire.protocol.catalog import all_messages
from kwire.protocol.language import compiler
from kwire.protocol.schemas.produce import ProduceRequest, TopicProduceData

DATA = Path(__file__).parents[1] / "data"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = show.main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(("name", "version"), [("ProduceRequest", "9"), ("FetchResponse", "12")])
def test_generated_code_is_unchanged(
    capsys: pytest.CaptureFixture[str], name: str, version: str
) -> None:
    """After a wanted change: `python -m kwire.protocol.show NAME VERSION > tests/data/generated-…`."""
    golden = (DATA / f"generated-{name}-{version}.txt").read_text()
    assert printed(capsys, name, version) == (0, golden, "")


def test_the_example_in_the_compilers_docstring_is_generated_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, text, _ = printed(capsys, "HeartbeatResponse", "4")
    assert compiler.__doc__ is not None
    assert compiler.__doc__.endswith(f" prints\n\n{textwrap.indent(text, '    ')}")


def test_a_traceback_shows_the_line_of_generated_code() -> None:
    with pytest.raises(TypeError) as caught:
        TopicProduceData(no_such_field=1)  # type: ignore[call-arg]
    assert "no_such_field" in str(caught.value)
    decode = ProduceRequest.compiled_decoder(9)
    with pytest.raises(TypeError) as caught:
        decode(None, 0)  # type: ignore[arg-type]
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.line) == (
        "<decode of ProduceRequest v9>",
        "data = memoryview(data)",
    )
    assert inspect.getsource(decode).startswith("def decode(data, p):\n")


def test_constructors_have_lines_and_names_of_their_own() -> None:
    TopicProduceData(name="a")
    made = TopicProduceData.__init__
    assert made.__code__.co_filename == (
        "<constructor of kwire.protocol.schemas.produce.TopicProduceData>"
    )
    assert "self.name = name\n" in inspect.getsource(made)


def test_no_two_messages_share_a_name() -> None:
    """Lines are found by the message's name."""
    names = Counter(cls.__name__ for _, cls in all_messages())
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), show.USAGE),
        (("ProduceRequest",), show.USAGE),
        (("ProduceRequest", "9", "10"), show.USAGE),
        (("Produce", "9"), "no message is called 'Produce'"),
        (
            ("ProduceRequst", "9"),
            "no message is called 'ProduceRequst'; the most similar name is ProduceRequest",
        ),
        (("ProduceRequest", "99"), "ProduceRequest has versions 0-13, not 99"),
        (("ProduceRequest", "9" * 5000), f"ProduceRequest has versions 0-13, not {'9' * 5000}"),
        (("ProduceRequest", "nine"), "'nine' is not a version"),
        (("ProduceRequest", "-1"), "'-1' is not a version"),
        (("ProduceRequest", "²"), "'²' is not a version"),
    ],
)
def test_an_unknown_message_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    status, out, err = printed(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(complaint)
    assert err.count("\n") == 1


def test_help_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = printed(capsys, "--help")
    assert (status, err) == (0, "")
    assert "python -m kwire.protocol.show ProduceRequest 9" in out


@pytest.mark.parametrize(
    "name",
    ["coordinator/group/OffsetCommitKey", "OffsetCommitKey", "ListClientMetricsResourcesRequest"],
)
def test_other_names_of_a_message(capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, out, _ = printed(capsys, name, "0")
    assert status == 0
    assert out.startswith("# decode of ")


def test_every_message_can_be_shown() -> None:
    for _, cls in all_messages():
        for version in cls.versions:
            text = show.generated(cls, version)
            compile(text, "shown", "exec")
            assert "\ndef decode(" in text
            assert "\ndef encode(" in text
