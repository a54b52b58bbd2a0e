"""Tool schemas in OpenAI's shape, from all the usual ones.

What belongs here: the shapes people declare tools in, and the types that are no JSON Schema's. Not here: calls.

Shapes: OpenAI's ``{type, function: {...}}``; bare ``{name, description, parameters}``, as in the Berkeley benchmark,
Glaive's and the Responses API; Anthropic's ``input_schema`` (MCP: ``inputSchema``); Bedrock's ``toolSpec``; Gemini's
``function_declarations``;
xLAM's parameters without a schema around them; lists of parameters with their names inside; a dict keyed by name; any
of these as JSON text. A tool never goes without the parameters that it has: under a key nobody knows they are refused.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from eagle3_assets.prompts.dialogue import Json, RefusedRowError
from eagle3_assets.prompts.formats.type_names import is_type, type_of
from eagle3_assets.prompts.formats.values import from_text, kind, name, only_one, says_nothing
from eagle3_assets.tokens.safe_text import quoted

PARAMETERS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
LOOSELY = ("arguments", "args", "inputs", "params", "args_schema")
"""Where parameters are, too, if none of the above has any."""
DECLARATIONS = ("function_declarations", "functionDeclarations")

_AROUND = ("type", "function")

_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NEVER_NULL = {*_SCHEMAS, *_LISTS_OF_SCHEMAS, *_NAMED_SCHEMAS, "required", "enum"}
"""Where JSON Schema has an object or a list, null is a key that is not there."""
_WHOLE = ("$ref", "anyOf", "oneOf", "allOf", "patternProperties")
"""What may say all of an object that has no ``properties``."""
_OF_OBJECTS = {"additionalProperties", "$defs", "definitions"}
_NOTES = {
    *("type", "required", "title", "description", "$schema", "$id", "$comment", "strict", "default", "nullable"),
    *("example", "examples", "minProperties", "maxProperties"),
}
"""What stands in a schema beside its properties; as an object, or as a type's name, it is a property's."""
_RETURNED = ("returns", "return", "response", "output_schema", "outputSchema")
"""Where a function may have a schema of what it gives."""
_BESIDE_PARAMETERS = {
    # What a function may hold without it being its parameters.
    *_RETURNED,
    *("return_type", "responses", "result", "results", "output", "outputs", "examples", "example", "input_examples"),
    *(
        "tags",
        "annotations",
        "metadata",
        "meta",
        "_meta",
        "cache_control",
        "allowed_callers",
        "required",
        "execution",
        "icons",
        "errors",
    ),
}


def tools(given: Any, where: str) -> list[Json] | None:  # noqa: ANN401 - parsed JSON
    """Declared tools as OpenAI has them, each once; None without any.

    Raises:
        RefusedRowError: a tool has none of the shapes; the text names its place.
    """
    if given is None or (isinstance(given, str) and not given.strip()):
        return None
    value = from_text(given, where)
    if isinstance(value, dict):
        value = _of_dict(value, where)
    if value is None:
        return None
    if not isinstance(value, list):
        raise RefusedRowError(f"`{where}` is {kind(value)}, not a list of tools")
    found: list[Json] = []
    for i, item in enumerate(value):
        place = f"{where}[{i}]"
        tool = _unwrapped(from_text(item, place))
        declared = only_one(tool, DECLARATIONS, f"{place}.") if isinstance(tool, dict) else None
        if declared is None:
            found.append(_tool(tool, place))
        else:
            others = [key for key, value in tool.items() if key not in DECLARATIONS and value is not None]
            if others:
                raise RefusedRowError(f"`{place}` has {quoted(others[0])} beside functions; only these are supported")
            found += tools(declared, f"{place}.function_declarations") or []
    return [tool for i, tool in enumerate(found) if tool not in found[:i]] or None


_RENDERED = re.compile(r"\s*<\|im_system\|>tool_declare<\|im_middle\|>(.*?)(?:<\|im_end\|>)?\s*", re.DOTALL)


def rendered_tools(said: str) -> list[Json] | None:
    """The tools of a system prompt that is nothing but Kimi's markup of them (Toucan); None for any other text."""
    found = _RENDERED.fullmatch(said)
    try:
        return tools(found[1], "system") if found else None
    except RefusedRowError:
        return None


def same_tools(some: Sequence[Json], others: Sequence[Json]) -> bool:
    """Whether both declare the same tools, in whatever order."""
    return len(some) == len(others) and all(tool in others for tool in some)


def names_declared_twice(declared: Sequence[Json]) -> list[str]:
    """Names that more than one of the declared tools have, which then differ."""
    counts = Counter(tool["function"]["name"] for tool in declared)
    return [named for named, count in counts.items() if count > 1]


def _unwrapped(tool: Any) -> Any:  # noqa: ANN401 - parsed JSON
    """Bedrock's tool without what it has around itself, ``toolSpec``, and around its schema, ``json``."""
    if isinstance(tool, dict) and list(tool) == ["toolSpec"]:
        tool = tool["toolSpec"]
    around = tool.get("inputSchema") if isinstance(tool, dict) else None
    return {**tool, "inputSchema": around["json"]} if isinstance(around, dict) and list(around) == ["json"] else tool


def schema(given: Any, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    """A JSON Schema whose types are JSON Schema's at every depth, not Python's, Java's or Gemini's.

    Properties are named and required where JSON Schema has that said, wherever the source says it.

    Raises:
        RefusedRowError: properties in a list have no name, or one of them twice.
    """
    if not isinstance(given, dict):
        return given
    made: Json = {}
    required: list[str] = []
    for key, value in given.items():
        if value is None and key in _NEVER_NULL:
            continue
        if key == "type":
            # What the schema says of its items itself is more than the type's name does.
            made |= {said: of for said, of in type_of(value).items() if said == "type" or said not in given}
        elif key == "properties" and isinstance(value, dict | list):
            made[key], required = _properties(value, f"{where}.properties")
        elif key in _NAMED_SCHEMAS and isinstance(value, dict):
            made[key] = {named: schema(item, f"{where}.{key}") for named, item in value.items()}
        elif key in _LISTS_OF_SCHEMAS and isinstance(value, list):
            made[key] = [schema(item, f"{where}.{key}") for item in value]
        elif key in _SCHEMAS:
            made[key] = schema(value, f"{where}.{key}")
        else:
            made.setdefault(key, value)
    return _requiring(made, required)


def _properties(given: Json | list[Any], where: str) -> tuple[Json, list[str]]:
    """Properties by name, and those that say themselves that they are required."""
    named = given if isinstance(given, dict) else _by_name(given, where)
    made: Json = {}
    required = []
    for key, value in named.items():
        item = {"type": value} if _names_type(value) else value
        if isinstance(item, dict) and isinstance(item.get("required"), bool):
            required += [key] if item["required"] else []
            item = {said: of for said, of in item.items() if said != "required"}
        made[key] = schema(item, f"{where}.{key}")
    return made, required


def _by_name(given: list[Any], where: str) -> Json:
    """Properties that have their name inside, by it."""
    found: Json = {}
    for i, item in enumerate(given):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"].strip():
            raise RefusedRowError(f"`{where}[{i}]` must be an object with the parameter's `name`")
        if item["name"] in found:
            raise RefusedRowError(f"`{where}` has {quoted(item['name'])} twice")
        found[item["name"]] = {key: value for key, value in item.items() if key != "name"}
    return found


def _requiring(made: Json, names: list[str]) -> Json:
    """A schema that requires these properties, too."""
    known = made.get("required")
    known = known if isinstance(known, list) else []
    more = [named for named in names if named not in known]
    return {**made, "required": [*known, *more]} if more else made


def _of_dict(value: Json, where: str) -> list[Any]:
    """One tool alone, Gemini's list of them, or tools by name."""
    if not value:
        return []
    if "function" in value or "name" in value or any(key in value for key in DECLARATIONS):
        return [value]
    for named, tool in value.items():
        if not isinstance(tool, dict):
            raise RefusedRowError(f"`{where}.{quoted(named)}` is {kind(tool)}, not a tool's description")
    return [tool if "function" in tool else {"name": named, **tool} for named, tool in value.items()]


def _tool(tool: Any, where: str) -> Json:  # noqa: ANN401 - parsed JSON
    if not isinstance(tool, dict):
        raise RefusedRowError(f"`{where}` is {kind(tool)}, not a tool")
    if tool.get("type") not in (None, "function", "custom") or (tool.get("type") == "custom" and "custom" in tool):
        raise RefusedRowError(f"`{where}.type` is {quoted(tool['type'])}; only functions are supported")
    function, beside = tool.get("function"), {key: value for key, value in tool.items() if key not in _AROUND}
    if says_nothing(function):
        function = beside
    elif isinstance(function, dict):
        function = _merged(function, beside, where)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"].strip():
        raise RefusedRowError(f"`{where}` must be {{type: function, function: {{name, description, parameters}}}}")
    name(function["name"], f"{where}.function.name")
    spellings = _spellings(function, where)
    key = next((key for key in spellings if function.get(key) is not None), PARAMETERS[0])
    declared = _parameters(only_one(function, spellings, f"{where}."), f"{where}.{key}")
    required = function.get("required")
    if isinstance(required, list) and all(isinstance(named, str) for named in required):
        declared = _requiring(declared, [named for named in required if named in declared.get("properties", {})])
    made: Json = {}
    for key, value in function.items():
        if key in spellings:
            made["parameters"] = declared
        elif value is not None and not (key == "required" and declared.get("required") == value):
            made[key] = _returned(value, f"{where}.{key}") if key in _RETURNED else value
    return {"type": "function", "function": made if "parameters" in made else {**made, "parameters": declared}}


def _returned(value: Any, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    """What a function gives, in the types of its parameters where it is a schema; templates print it beside them."""
    if not isinstance(value, dict) or not (_names_type(value.get("type")) or isinstance(value.get("properties"), dict)):
        return value
    try:
        return schema(value, where)
    except RefusedRowError:  # no schema, and no parameters either: nothing is asked of it
        return value


def _spellings(function: Json, where: str) -> tuple[str, ...]:
    """The keys under which a function has its parameters.

    Raises:
        RefusedRowError: it has something that may well be its parameters under a key that nobody knows.
    """
    if any(not says_nothing(function.get(key)) for key in PARAMETERS):
        return PARAMETERS
    if any(not says_nothing(function.get(key)) for key in LOOSELY):
        return (*PARAMETERS, *LOOSELY)
    if any(function.get(key) is not None for key in PARAMETERS):
        return PARAMETERS
    for key, value in function.items():
        if isinstance(value, dict | list) and not says_nothing(value) and key not in _BESIDE_PARAMETERS:
            raise RefusedRowError(
                f"`{where}` has {quoted(key)} and no `parameters`: if these are its parameters, name them so"
            )
    return PARAMETERS


def _merged(function: Json, beside: Json, where: str) -> Json:
    """A function with what stands beside it instead of in it: some write the parameters there."""
    merged = dict(function)
    for key, value in beside.items():
        if says_nothing(value) or value == function.get(key):
            continue
        spellings = PARAMETERS if key in PARAMETERS else (key,)
        if any(function.get(spelling) for spelling in spellings):
            raise RefusedRowError(f"`{where}.{key}` and `{where}.function` say different things")
        merged[key] = value
    return merged


def _parameters(given: Any, where: str) -> Json:  # noqa: ANN401 - parsed JSON
    if given is None or (isinstance(given, str) and not given.strip()):
        return {"type": "object", "properties": {}}
    value = from_text(given, where)
    if isinstance(value, list):
        value = {"type": "object", "properties": _by_name(value, where)}
    if not isinstance(value, dict):
        raise RefusedRowError(f"`{where}` is {kind(value)}, not a JSON schema")
    value = {key: item for key, item in value.items() if item is not None or key not in _NEVER_NULL}
    if not value:
        return {"type": "object", "properties": {}}
    whole = isinstance(value.get("properties"), dict | list) and not isinstance(value.get("type"), dict)
    if not whole and not any(key in value for key in _WHOLE):
        value = _around(value, where)
    made: Json = schema(value, where)
    return made if "type" in made or "$ref" in made or "anyOf" in made else {"type": "object", **made}


def _around(value: Json, where: str) -> Json:
    """A schema around properties that stand without one, or beside its ``type``; one may be called ``type``."""
    named = {
        key: item
        for key, item in value.items()
        if key not in _OF_OBJECTS | _NOTES
        or (key in _NOTES and (isinstance(item, dict) or (key != "type" and _names_type(item))))
    }
    if not named:
        return value
    if "type" in value and "type" not in named and type_of(value["type"]).get("type") != "object":
        named = {key: item for key, item in value.items() if key in named or key == "type"}
    for key, item in named.items():
        if not isinstance(item, dict) and not _names_type(item):
            raise RefusedRowError(f"`{where}.{key}` is {quoted(item)}, neither a parameter's schema nor its type")
    properties = {key: item if isinstance(item, dict) else {"type": item} for key, item in named.items()}
    beside = {key: item for key, item in value.items() if key not in named}
    return {"type": "object", "properties": properties} | beside


def _names_type(item: Any) -> bool:  # noqa: ANN401 - parsed JSON
    return isinstance(item, str) and is_type(item)
