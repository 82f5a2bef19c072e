"""The JSON Schema that `penstock schema` prints, with an independent validator: it accepts every workflow that penstock accepts, and both refuse a
value of a wrong type."""
import copy
import json
import re
import subprocess

import jsonschema
import pytest
import yaml

from harness.program import TOP, binary

WORKFLOWS = TOP / "tests" / "unit" / "workflow"
EVERY_KEY = WORKFLOWS / "every_key.yaml"
MAPS = {"nothing": 1}


class Loader(yaml.SafeLoader):
    """YAML 1.2 as editors read it: `no` and `on` are text."""


Loader.yaml_implicit_resolvers = {}
for tag, pattern, first in (("bool", "true|True|TRUE|false|False|FALSE", "tTfF"), ("null", "null|Null|NULL|~|", ["n", "N", "~", ""]),
                            ("int", "[-+]?[0-9]+", "-+0123456789"),
                            ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789")):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))


@pytest.fixture(scope="module")
def schema():
    found = json.loads(subprocess.run([binary(), "schema"], check=True, capture_output=True, text=True).stdout)
    jsonschema.Draft7Validator.check_schema(found)
    return found


@pytest.fixture(scope="module")
def validator(schema):
    return jsonschema.Draft7Validator(schema)


def reading(text):
    """Returns the report of `penstock validate --json` about a workflow."""
    told = subprocess.run([binary(), "validate", "--json", "-"], input=text.encode(), capture_output=True, check=False)
    return json.loads(told.stdout)


def cases():
    for path in sorted((WORKFLOWS / "cases").glob("*.txt")):
        for case in re.split(r"^=== ", path.read_text(), flags=re.M)[1:]:
            name, _, rest = case.partition("\n")
            document = re.search(r"^--- document\n(.*?)(?=^--- |\Z)", rest, re.M | re.S)
            yield f"{path.name}: {name}", document[1]


def examples():
    for path in sorted((TOP / "examples").rglob("*.yaml")) + sorted((TOP / "examples").rglob("*.json")):
        yield str(path.relative_to(TOP)), path.read_text()


# A document that has a mistake, or is a file of another runner, does not test the schema.
def test_schema_accepts_what_penstock_accepts(validator):
    accepted = 0
    for name, text in [*cases(), *examples()]:
        report = reading(text)
        if not report["valid"] or report["dialect"] != "penstock":
            continue
        try:
            document = yaml.load(text, Loader)
        except yaml.YAMLError:  # with commas that JSON does not allow
            continue
        mistakes = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]
        assert not mistakes, (name, mistakes)
        mistakes = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(report["workflow"])
                    if "module" not in error.json_path]
        assert not mistakes, (name, "as it is printed", mistakes)
        accepted += 1
    assert accepted > 70


def paths(value, at=()):
    """Returns the path of every key of a document."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield at + (key,)
            yield from paths(below, at + (key,))
    elif isinstance(value, list):
        for i, below in enumerate(value):
            yield from paths(below, at + (i,))


def changed(document, path, value):
    document = copy.deepcopy(document)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return document


def test_every_key_has_a_line_of_the_case_file(schema, validator):
    document = yaml.load(EVERY_KEY.read_text(), Loader)
    used = {path[-1] for path in paths(document)}
    known = {key for definition in schema["definitions"].values() for key, row in definition["properties"].items() if "description" in row}

    # The only error is `vnet`, a key that penstock cannot honour on any machine.
    assert [each["message"].split()[0] for each in reading(EVERY_KEY.read_text())["diagnostics"] if each["severity"] == "error"] == ["`vnet`"]
    validator.validate(document)
    assert known - used == set()


# If text is expected, any scalar is read as text. Therefore a wrong value for a scalar is a map,
# and a wrong value for a map is a text.
def test_both_refuse_values_of_a_wrong_type(validator):
    document = yaml.load(EVERY_KEY.read_text(), Loader)
    tried = 0
    for path in paths(document):
        if path[-1] in ("description",) or path[-2:] == ("context", "path"):
            continue
        place = document
        for key in path:
            place = place[key]
        if path == ("context",):  # a text may replace the map
            wrongs = [[MAPS]]
        elif isinstance(place, list) and not isinstance(place[0], dict):  # a text may replace a list of one element
            wrongs = [MAPS]
        elif isinstance(place, (dict, list)):
            wrongs = ["neither", 3.5]
        else:
            wrongs = [MAPS, [MAPS]]
        for wrong in wrongs:
            bad = changed(document, path, wrong)
            assert not validator.is_valid(bad), (path, wrong, "the schema accepts it")
            assert not reading(json.dumps(bad))["valid"], (path, wrong, "penstock accepts it")
            tried += 1
    assert tried > 250


@pytest.mark.parametrize("text, key", [
    ("step: []\nsteps: [{run: {command: x}}]", "step"),
    ("steps: [{run: {comand: x}}]", "comand"),
    ("resources: {tasks: many}\nsteps: [{run: {command: x}}]", "many"),
    ("resources: {tasks: 0}\nsteps: [{run: {command: x}}]", "0"),
    ("resume: sometimes\nsteps: [{run: {command: x}}]", "sometimes"),
    ("timeout: soon\nsteps: [{run: {command: x}}]", "soon"),
    ("retry: {max: 1, codes: [256]}\nsteps: [{run: {command: x}}]", "256"),
    ("resources: {}", "steps"),
])
def test_both_refuse_a_mistake(validator, text, key):
    assert not validator.is_valid(yaml.load(text, Loader))
    report = reading(text)
    assert not report["valid"]
    assert any(key in entry["message"] for entry in report["diagnostics"])
