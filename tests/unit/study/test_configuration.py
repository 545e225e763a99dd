"""Keys of a YAML file that are there twice."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.questions.claims.claim_files import read_claims
from stallpoint.study.configuration import check, check_keys, load_study, load_yaml, typed

plain = st.recursive(
    st.integers() | st.booleans() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(plain)
def test_yaml_without_such_keys_is_read_as_ever(value: object) -> None:
    text = yaml.safe_dump(value)
    assert load_yaml(text, "file") == yaml.safe_load(text)


def test_texts_of_numbers_and_switches_are_numbers_and_switches() -> None:
    """Snakemake's --config reads lists and mappings with texts alone."""
    block = {
        "network": "alexnet",
        "batch": 16,
        "nodes": [1, 2],
        "prefetch": 0,
        "x": 1e-6,
        "dates": "2026-11-27",
        "y": True,
    }
    text = yaml.safe_dump([block, {"a: b": "c: d", "none": None, "odd": "[", "float": 0.5}])
    written = yaml.load(text, Loader=yaml.BaseLoader)
    assert written[0]["batch"] == "16"
    assert typed(written) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", "file, line 3: key 'a' stands in line 1 already"),
        ("m:\n- {b: 1}\n- x: {c: 1,\n     c: 2}\n", "file, line 4: key 'c' stands in line 3 already"),
        ("a: &x {b: 1}\nc: *x\n'a': 2\n", "file, line 3: key 'a' stands in line 1 already"),
    ],
)
def test_a_key_that_is_there_twice_is_named_with_both_lines(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_yaml(text, "file")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a: \xff\n", "not UTF-8 (byte 3); save it as UTF-8"),
        (b"a:\n  b: &x\n    c: *x\n", "line 2: what begins here holds an alias of itself"),
        (b"a: " + 5000 * b"[" + 5000 * b"]", "too deep in each other"),
        (b"a: " + 5000 * b"9", "4300 digits"),
    ],
)
def test_what_readers_end_in_a_traceback_of_is_said_in_a_sentence(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "study.yaml").write_bytes(data)
    with pytest.raises(InputError) as error:
        check_keys(tmp_path / "study.yaml")
    assert says in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "study.yaml"))
    assert len(str(error.value)) < 300


def test_the_same_key_elsewhere_and_entries_used_twice_are_fine() -> None:
    text = "a: &x {b: 1}\nc: {b: 2, d: *x}\ne: {<<: *x, f: 1}\n1: {}\n'1': {}\n"
    assert load_yaml(text, "file") == yaml.safe_load(text)


def test_files_that_others_read_are_looked_at_for_such_keys_alone(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    for text in ("{\n\t'a': 1}", "a: [", ""):
        file.write_text(text)
        check_keys(file)
    check_keys(tmp_path / "none.yaml")
    check_keys(tmp_path)
    file.write_text("a: 1\na: 1\n")
    with pytest.raises(InputError, match=r"study.yaml, line 2: key 'a'"):
        check_keys(file)


def test_claims_are_read_so_too(tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text("paper: a\npaper: b\nclaims: []\n")
    with pytest.raises(InputError, match=r"claims.yaml, line 2: key 'paper' stands in line 1"):
        read_claims([file])
    with pytest.raises(InputError, match="Is a directory"):
        read_claims([tmp_path])


def test_aliases_of_aliases_are_counted_before_anything_is_walked() -> None:
    levels = [f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 9)}]" for level in range(1, 30)]
    config = load_yaml("\n".join(["x0: &x0 [a]", *levels]), "study.yaml")
    with pytest.raises(InputError, match=r"entries with its aliases .* at most 1,000,000"):
        check(config, {"type": "object"})


def test_a_study_is_read_upon_those_that_it_builds_on(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/base.yaml").write_text(
        "study: base\nseed: 3\nhardware: {a: {nodes: 4, device: cpu}, b: {nodes: 1}}\n"
    )
    (tmp_path / "site/middle.yaml").write_text(
        "builds_on: base.yaml\nhardware: {a: {nodes: 8}}\nmatrix: [{nodes: [1, 2]}]\n"
    )
    (tmp_path / "top.yaml").write_text("study: top\nbuilds_on: site/middle.yaml\nmatrix: [{nodes: 4}]\n")
    assert load_study(tmp_path / "top.yaml") == {
        "study": "top",
        "seed": 3,
        "hardware": {"a": {"nodes": 8, "device": "cpu"}, "b": {"nodes": 1}},
        "matrix": [{"nodes": 4}],
    }


@pytest.mark.parametrize(
    ("builds_on", "message"),
    [
        (
            "nowhere.yaml",
            r"top.yaml: builds_on: there is no file .*nowhere.yaml; a path from the folder of top.yaml is",
        ),
        ("2", r"top.yaml: builds_on: 2 is no file"),
        ("top.yaml", r"top.yaml: builds_on: top.yaml -> top.yaml is a circle"),
        (
            "other.yaml",
            r"other.yaml: builds_on: top.yaml -> other.yaml -> top.yaml is a circle; one of them has to stand",
        ),
    ],
)
def test_a_study_that_cannot_be_built_upon_is_named(tmp_path: Path, builds_on: str, message: str) -> None:
    (tmp_path / "top.yaml").write_text(f"study: top\nbuilds_on: {builds_on}\n")
    (tmp_path / "other.yaml").write_text("study: other\nbuilds_on: top.yaml\n")
    with pytest.raises(InputError, match=message):
        load_study(tmp_path / "top.yaml")
