"""Tool schemas: every usual shape becomes OpenAI's, with JSON Schema's types at every depth."""

import json
from typing import Any

import pytest

from eagle3_assets.prompts.dialogue import RefusedRowError
from eagle3_assets.prompts.formats.tools import schema, tools

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
BARE = {"name": "f", "description": "d"}
STRINGS = {"type": "array", "items": {"type": "string"}}

SHAPES: dict[str, Any] = {
    "OpenAI": [TOOL],
    "one alone": TOOL,
    "bare": [FUNCTION],
    "bare with a type": [{"type": "function", **FUNCTION}],
    "one alone, bare": FUNCTION,
    "JSON text": json.dumps([FUNCTION]),
    "a list of JSON texts": [json.dumps(TOOL)],
    "Anthropic": [{**BARE, "input_schema": SCHEMA}],
    "MCP": [{**BARE, "inputSchema": SCHEMA}],
    "Gemini": [{"function_declarations": [{**BARE, "parameters": {**SCHEMA, "type": "OBJECT"}}]}],
    "Gemini, camel case, alone": {"functionDeclarations": [FUNCTION]},
    "keyed by name": {"f": {"description": "d", "parameters": SCHEMA}},
    "keyed by name, whole tools": {"f": TOOL},
    "parameters as JSON text": [{**BARE, "parameters": json.dumps(SCHEMA)}],
    "parameters and description beside the function": [
        {"type": "function", "function": {"name": "f"}, "description": "d", "parameters": SCHEMA}
    ],
    "nulls and nothing beside the function": [{**TOOL, "parameters": None, "description": "", "notes": {"a": None}}],
    "arguments instead of parameters": [{**BARE, "arguments": SCHEMA}],
    "args, bare, with what is required": [{**BARE, "args": {"city": {"type": "str"}, "required": ["city"]}}],
    "inputs, by type names": [{**BARE, "inputs": {"city": "str"}, "required": ["city"]}],
    "arguments beside the function": [{"type": "function", "function": BARE, "arguments": SCHEMA}],
    "bare beside the type": [{**BARE, "parameters": {"type": "dict", "city": {"type": "str"}, "required": ["city"]}}],
    "parameters in a list": [{**BARE, "parameters": [{"name": "city", "type": "str", "required": True}]}],
    "properties in a list": [
        {**BARE, "parameters": {"type": "object", "properties": [{"name": "city", "type": "str", "required": True}]}}
    ],
    "required in the property": [
        {**BARE, "parameters": {"type": "object", "properties": {"city": {"type": "string", "required": True}}}}
    ],
    "required beside the parameters": [
        {**BARE, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}, "required": ["city"]}
    ],
    "properties by type names": [{**BARE, "parameters": {**SCHEMA, "properties": {"city": "str"}}}],
    "Bedrock": [{"toolSpec": {**BARE, "inputSchema": {"json": SCHEMA}}}],
    "Bedrock, without what is around it": [{**BARE, "inputSchema": {"json": json.dumps(SCHEMA)}}],
    "arguments beside empty parameters": [{**BARE, "parameters": {}, "arguments": SCHEMA}],
    "nulls in the function": [{"type": "function", "function": {**FUNCTION, "strict": None, "input_schema": None}}],
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_becomes_openais(name: str) -> None:
    found = tools(SHAPES[name], "tools")
    assert found == [TOOL]
    assert list(found[0]["function"]) == list(FUNCTION)


@pytest.mark.parametrize("none", [None, "", " ", [], {}, "[]", "{}", "null"])
def test_no_tools_are_none(none: Any) -> None:
    assert tools(none, "tools") is None


def test_a_null_in_a_schema_is_the_writers_own() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string", "default": None, "enum": ["x", None]}}}
    [tool] = tools([{"name": "f", "parameters": parameters}], "tools") or []
    assert tool["function"]["parameters"] == parameters


@pytest.mark.parametrize("parameters", [None, {}, "", "{}"])
def test_missing_parameters_are_an_empty_object(parameters: Any) -> None:
    [tool] = (
        tools(
            [
                {**BARE, "parameters": parameters},
            ],
            "tools",
        )
        or []
    )
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}


def test_what_else_a_function_says_stays_in_its_order() -> None:
    function = {"strict": True, **FUNCTION, "response": {"type": "object"}}
    [tool] = tools([function], "tools") or []
    assert json.dumps(tool["function"]) == json.dumps(function)


def test_parameters_without_a_schema_around_them() -> None:
    given = {"where": {"description": "d", "type": "str", "default": ""}, "type": {"type": "int, optional"}}
    [tool] = tools([{"name": "f", "parameters": given}], "tools") or []
    properties = {"where": {"description": "d", "type": "string", "default": ""}, "type": {"type": "integer"}}
    assert tool["function"]["parameters"] == {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("dict", {"type": "object"}),
        ("HashMap", {"type": "object"}),
        ("tuple", {"type": "array"}),
        ("ArrayList", {"type": "array"}),
        ("float", {"type": "number"}),
        ("String", {"type": "string"}),
        ("STRING", {"type": "string"}),
        ("bool", {"type": "boolean"}),
        ("long", {"type": "integer"}),
        ("any", {}),
        ("str, optional", {"type": "string"}),
        ("Optional[int]", {"type": "integer"}),
        ("List[float]", {"type": "array", "items": {"type": "number"}}),
        (
            "Tuple[int, str]",
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        ("Tuple[int, ...]", {"type": "array", "items": {"type": "integer"}}),
        ("Dict[str, int]", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("dict[str, list[int]]", {"type": "object", "additionalProperties": STRINGS | {"items": {"type": "integer"}}}),
        ("Map<String, Integer>", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("Dict[str, Any]", {"type": "object"}),
        ("string[]", STRINGS),
        ("array<string>", STRINGS),
        ("Set<String>", STRINGS),
        ("list of strings", STRINGS),
        ("Optional[str][]", STRINGS),
        ("Optional[List[str]], optional", STRINGS),
        ("typing.List[str]", STRINGS),
        ("string[][]", {"type": "array", "items": STRINGS}),
        ("str[3]", STRINGS),
        ("list[]", {"type": "array"}),
        ("dict[]", {"type": "array", "items": {"type": "object"}}),
        ("float | None", {"type": "number"}),
        ("str (optional)", {"type": "string"}),
        ("int, required", {"type": "integer"}),
        ("Union[int, str]", {"type": ["integer", "string"]}),
        ("int or str", {"type": ["integer", "string"]}),
        ("Union[List[str], int, None]", {"anyOf": [STRINGS, {"type": "integer"}]}),
        ("Union[int, Any]", {}),
        (["List[str]", "null"], {"anyOf": [STRINGS, {"type": "null"}]}),
        (["string"], {"type": ["string"]}),
        ("string[string]", {"type": "string[string]"}),
        ("List[...]", {"type": "List[...]"}),
        ("Callable[[int], str]", {"type": "Callable[[int], str]"}),
        ("optional", {"type": "optional"}),
        ("list[any]", {"type": "array"}),
        (["dict", "null"], {"type": ["object", "null"]}),
        ("Callable", {"type": "Callable"}),
        ("List[", {"type": "List["}),
    ],
)
def test_types_are_json_schemas(given: Any, right: dict[str, Any]) -> None:
    assert schema({"type": given}, "s") == right


def test_what_is_beside_the_parameters_is_none_of_them() -> None:
    function = {"name": "f", "parameters": SCHEMA, "arguments": {"city": "Oslo"}, "returns": {"type": "string"}}
    tool, other = tools([function, {"name": "g", "returns": {"type": "string"}}], "tools") or []
    assert tool["function"] == function
    assert other["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("key", ["returns", "response", "output_schema"])
def test_what_a_function_returns_is_in_the_types_of_its_parameters(key: str) -> None:
    """The Berkeley benchmark has a ``response`` of Python's types beside each function's parameters."""
    given = {"type": "dict", "properties": {"rows": {"type": "list", "items": {"type": "float"}}}}
    [tool] = tools([{"name": "f", "parameters": SCHEMA, key: given}], "tools") or []
    right = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "number"}}}}
    assert tool["function"][key] == right
    [tool] = tools([{"name": "f", "parameters": SCHEMA, key: {"properties": given["properties"]}}], "tools") or []
    assert tool["function"][key] == {"properties": right["properties"]}


@pytest.mark.parametrize(
    "given",
    [
        "List[int]",
        {"temperature": 3},
        {"type": "thing", "properties": [{"a": 1}]},
        {"type": "dict", "properties": [{"type": "str"}]},
    ],
)
def test_what_a_function_returns_stays_where_it_is_no_schema(given: Any) -> None:
    [tool] = tools([{"name": "f", "parameters": SCHEMA, "returns": given}], "tools") or []
    assert tool["function"]["returns"] == given


@pytest.mark.parametrize(
    "whole",
    [
        {"type": "object"},
        {"type": "object", "title": "Nothing", "description": "Takes none.", "additionalProperties": False},
        {"anyOf": [{"type": "object"}]},
        {"type": "object", "properties": {"type": {"type": "string"}, "required": {"type": "boolean"}}},
    ],
)
def test_a_whole_schema_stays(whole: dict[str, Any]) -> None:
    [tool] = tools([{"name": "f", "parameters": whole}], "tools") or []
    assert tool["function"]["parameters"] == whole


def test_types_at_every_depth_and_properties_called_type() -> None:
    given = {
        "type": "dict",
        "properties": {
            "type": {"type": "float", "enum": ["dict", "float"], "default": "float"},
            "pairs": {"type": "tuple", "items": {"type": "dict", "additionalProperties": {"type": "float"}}},
            "either": {"anyOf": [{"type": "float"}, {"type": "tuple", "items": [{"type": "float"}]}]},
        },
        "$defs": {"x": {"type": "dict"}},
        "additionalProperties": False,
    }
    assert schema(given, "s") == {
        "type": "object",
        "properties": {
            "type": {"type": "number", "enum": ["dict", "float"], "default": "float"},
            "pairs": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "number"}}},
            "either": {"anyOf": [{"type": "number"}, {"type": "array", "items": [{"type": "number"}]}]},
        },
        "$defs": {"x": {"type": "object"}},
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (3, "`tools` is a number, not a list of tools"),
        ("[{]", "`tools` is not JSON"),
        ("get_weather", "`tools` is not JSON"),
        (["f"], "`tools[0]` is not JSON"),
        ([3], "`tools[0]` is a number, not a tool"),
        (
            [TOOL, {"description": "d"}],
            "`tools[1]` must be {type: function, function: {name, description, parameters}}",
        ),
        ([{"name": " "}], "`tools[0]` must be"),
        ([{"type": "web_search"}], "`tools[0].type` is 'web_search'; only functions are supported"),
        ([{"name": "f", "parameters": 3}], "`tools[0].parameters` is a number, not a JSON schema"),
        ([{"name": "f", "parameters": [1]}], "`tools[0].parameters[0]` must be an object with the parameter's `name`"),
        (
            [{"name": "f", "parameters": {"type": "object", "properties": [{"name": "a"}, {"name": "a"}]}}],
            "`tools[0].parameters.properties` has 'a' twice",
        ),
        (
            [{"name": "f", "parameters": {"city": "string. Where it is."}}],
            "`tools[0].parameters.city` is 'string. Where it is.', neither a parameter's schema nor its type",
        ),
        ([{"name": "f", "arguments": {"city": "Oslo"}}], "`tools[0].arguments.city` is 'Oslo', neither"),
        (
            [{"name": "f", "required_parameters": [{"name": "a"}]}],
            "`tools[0]` has 'required_parameters' and no `parameters`: if these are its parameters, name them so",
        ),
        ([{"name": "f", "parameters": "x"}], "`tools[0].parameters` is not JSON"),
        (
            [{"name": "f", "parameters": {"type": "object"}, "input_schema": SCHEMA}],
            "`tools[0].parameters` and `tools[0].input_schema`",
        ),
        (
            [{**TOOL, "input_schema": {"type": "object"}}],
            "`tools[0].input_schema` and `tools[0].function` say different",
        ),
        (
            [{"function_declarations": [FUNCTION], "google_search": {}}],
            "`tools[0]` has 'google_search' beside functions",
        ),
        ({"f": "d"}, "is text, not a tool's description"),
        ([{**TOOL, "description": "e"}], "`tools[0].description` and `tools[0].function` say different things"),
        (
            [{"name": "f", "parameters": {"type": "object", "default": float("inf")}}],
            "holds inf, which JSON cannot say",
        ),
    ],
)
def test_what_is_no_tool_is_refused_by_name(given: Any, reason: str) -> None:
    with pytest.raises(RefusedRowError) as refusal:
        tools(given, "tools")
    assert reason in str(refusal.value)


@pytest.mark.parametrize("keys", [("type", "items"), ("items", "type")])
def test_items_that_are_described_stay(keys: tuple[str, str]) -> None:
    item = {"type": "object", "properties": {"a": {"type": "string"}}}
    given = {"type": "List[dict]", "items": item}
    assert schema({key: given[key] for key in keys}, "s") == {"type": "array", "items": item}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"type": "object", "properties": None}, {"type": "object"}),
        ({"properties": None, "required": None}, {"type": "object", "properties": {}}),
        (
            {"type": "object", "properties": {"a": {"type": "object", "properties": None, "default": None}}},
            {"type": "object", "properties": {"a": {"type": "object", "default": None}}},
        ),
    ],
)
def test_null_where_json_schema_has_an_object_or_a_list_is_no_key(given: Any, made: Any) -> None:
    found = tools([{"name": "f", "parameters": given}], "tools")
    assert found is not None
    assert found[0]["function"]["parameters"] == made
