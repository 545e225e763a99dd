"""What scripts ask Snakemake for has the names that their rules give: inputs, outputs, parameters and wildcards."""

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

RULES = Path(__file__).parents[3] / "workflow/rules"
RULE = re.compile(r"^(?P<indent> *)rule ?(?P<name>\w*):\n(?P<body>(?:(?P=indent)    .*\n|\n)+)", re.MULTILINE)
SECTION = re.compile(r"^(\w+):(.*\n(?: .*\n|\n)*)", re.MULTILINE)
METHODS = {"items"}
"""Of the objects that hold what a rule gives."""


@dataclass(frozen=True)
class Rule:
    """A rule with a script: the arguments of its sections, and what its file takes from the library."""

    script: Path
    sections: Mapping[str, ast.Call]
    library: dict[str, Any]

    def given(self, rules: Mapping[str, "Rule"], section: str) -> set[str]:
        """Return the names that the rule gives in a section, those included that it takes from another rule."""
        found: set[str] = set()
        if section == "wildcards":
            texts = [node.value for node in ast.walk(self.sections["output"]) if isinstance(node, ast.Constant)]
            return found.union(*(re.findall(r"{(\w+)[,}]", str(text)) for text in texts))
        for argument in self.sections[section].keywords if section in self.sections else ():
            match argument:
                case ast.keyword(arg=str(name)):
                    found.add(name)
                case ast.keyword(value=ast.DictComp(key=key, generators=generators)):
                    keys = ast.fix_missing_locations(ast.Expression(ast.ListComp(key, generators)))
                    found.update(eval(compile(keys, "", "eval"), self.library))
                case ast.keyword(value=ast.Attribute(ast.Attribute(ast.Name("rules"), rule), other)):
                    found |= rules[rule].given(rules, other)
                case ast.keyword(value=ast.Call(ast.Name("files_of"), [ast.Attribute(ast.Name("rules"), rule)])):
                    found |= rules[rule].given(rules, "output")
                case _:
                    raise AssertionError(f"{self.script.name}: {section}: {ast.unparse(argument)}")
        return found


def read_rules() -> Iterator[tuple[str, Rule]]:
    """Yield all rules that have a script, by name."""
    for file in sorted(RULES.glob("*.smk")):
        text = file.read_text()
        library: dict[str, Any] = {}
        exec("\n".join(re.findall(r"^from stallpoint\..* import .*$", text, re.MULTILINE)), library)
        for rule in RULE.finditer(text):
            sections: dict[str, Any] = {
                name: ast.parse(f"given({arguments})", mode="eval").body
                for name, arguments in SECTION.findall(textwrap.dedent(rule["body"]))
            }
            if "script" in sections:
                (script,) = (ast.literal_eval(argument) for argument in sections["script"].args)
                name = rule["name"] or ast.unparse(sections["name"].args[0])
                yield name, Rule(RULES / script, sections, library)


READ = dict(read_rules())


def asked_for(tree: ast.Module) -> dict[str, set[str]]:
    """Return names that a script asks for, by what they are names of: ``snakemake.params.seed`` is one of params."""
    found = defaultdict(set)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Attribute(ast.Name("snakemake"), section), name) if name not in METHODS:
                found[section].add(name)
    return found


@pytest.mark.parametrize("name", READ)
def test_what_a_script_asks_for_is_what_its_rule_gives(name: str) -> None:
    rule = READ[name]
    tree = ast.parse(rule.script.read_text())
    asked = asked_for(tree)
    for section, names in asked.items():
        assert names <= rule.given(READ, section), f"{section} of {rule.script.name}"
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert rule.given(READ, "params") <= asked["params"] | words, f"a parameter that {rule.script.name} does not read"


def test_rules_of_all_files_are_read() -> None:
    assert {"collect", "fit", "report_page", "archive", "comparison", "prepare_storage", "paper_chart"} <= READ.keys()
    assert {"runs", "predictions", "conclusions"} <= READ["report_page"].given(READ, "input")
    assert READ["paper_chart"].given(READ, "wildcards") == {"paper"}
