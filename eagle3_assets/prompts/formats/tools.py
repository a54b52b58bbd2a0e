"""Tool schemas in OpenAI's shape, from all the usual ones.

What belongs here: the shapes people declare tools in, and the types that are no JSON Schema's. Not here: calls.

Shapes: OpenAI's ``{type, function: {...}}``; bare ``{name, description, parameters}``, as in the Berkeley benchmark,
Glaive's and the Responses API; Anthropic's ``input_schema`` (MCP: ``inputSchema``); Gemini's ``function_declarations``;
xLAM's parameters without a schema around them; a dict keyed by name; any of these as JSON text.
"""

import re
from typing import Any

from eagle3_assets.prompts.dialogue import Json, RefusedRowError
from eagle3_assets.prompts.formats.values import from_text, kind, name, only_one, says_nothing
from eagle3_assets.tokens.safe_text import quoted

PARAMETERS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
DECLARATIONS = ("function_declarations", "functionDeclarations")

_TYPES = {
    "object": ("dict", "object", "hashmap", "map", "mapping", "hashtable"),
    "array": ("list", "tuple", "array", "arraylist", "set", "sequence"),
    "string": ("str", "string", "char"),
    "integer": ("int", "integer", "long", "short", "byte"),
    "number": ("float", "double", "number", "decimal"),
    "boolean": ("bool", "boolean"),
    "null": ("none", "nonetype", "null"),
}
_NAMED = {spelled: right for right, others in _TYPES.items() for spelled in others}
_AROUND = ("type", "function")
_ANY = ("any", "")
"""JSON Schema says it by naming no type."""
_OF = re.compile(r"(\w+)\s*\[(.*)\]")

_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def tools(given: Any, where: str) -> list[Json] | None:  # noqa: ANN401 - parsed JSON
    """Declared tools as OpenAI has them; None without any.

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
        tool = from_text(item, place)
        declared = only_one(tool, DECLARATIONS, f"{place}.") if isinstance(tool, dict) else None
        if declared is None:
            found.append(_tool(tool, place))
        else:
            others = [key for key, value in tool.items() if key not in DECLARATIONS and value is not None]
            if others:
                raise RefusedRowError(f"`{place}` has {quoted(others[0])} beside functions; only these are supported")
            found += tools(declared, f"{place}.function_declarations") or []
    return found or None


def schema(given: Any) -> Any:  # noqa: ANN401 - parsed JSON
    """A JSON Schema whose types are JSON Schema's at every depth, not Python's, Java's or Gemini's."""
    if not isinstance(given, dict):
        return given
    made: Json = {}
    for key, value in given.items():
        if key == "type":
            # What the schema says of its items itself is more than the type's name does.
            made |= {said: of for said, of in _typed(value).items() if said == "type" or said not in given}
        elif key in _NAMED_SCHEMAS and isinstance(value, dict):
            made[key] = {named: schema(item) for named, item in value.items()}
        elif key in _LISTS_OF_SCHEMAS and isinstance(value, list):
            made[key] = [schema(item) for item in value]
        elif key in _SCHEMAS:
            made[key] = schema(value)
        else:
            made.setdefault(key, value)
    return made


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
    declared = _parameters(only_one(function, PARAMETERS, f"{where}."), f"{where}.parameters")
    made: Json = {}
    for key, value in function.items():
        if key in PARAMETERS:
            made["parameters"] = declared
        elif value is not None:
            made[key] = value
    return {"type": "function", "function": made if "parameters" in made else {**made, "parameters": declared}}


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
    if not isinstance(value, dict):
        raise RefusedRowError(f"`{where}` is {kind(value)}, not a JSON schema")
    if not value:
        return {"type": "object", "properties": {}}
    if not _is_schema(value):
        return {"type": "object", "properties": {named: schema(item) for named, item in value.items()}}
    made: Json = schema(value)
    return made if "type" in made or "$ref" in made or "anyOf" in made else {"type": "object", **made}


def _is_schema(value: Json) -> bool:
    """False for properties without a schema around them, each an object; one may be called ``type``."""
    if any(not isinstance(item, dict) for item in value.values()):
        return True
    return isinstance(value.get("properties"), dict) and not isinstance(value.get("type"), dict)


def _typed(value: Any) -> Json:  # noqa: ANN401 - parsed JSON
    """What a schema says by its ``type``; a name nobody knows stays."""
    if isinstance(value, list):
        return {"type": [_NAMED.get(item.lower(), item) if isinstance(item, str) else item for item in value]}
    if not isinstance(value, str):
        return {"type": value}
    spelled = value.strip().removesuffix(", optional").strip()  # xLAM's
    if spelled.lower() in _NAMED:
        return {"type": _NAMED[spelled.lower()]}
    if spelled.lower() in _ANY:
        return {}
    inner = _OF.fullmatch(spelled)
    if inner is None:
        return {"type": value}
    outer, of = inner.group(1).lower(), inner.group(2)
    if outer == "optional":
        return _typed(of)
    if _NAMED.get(outer) == "array":
        items = _typed(of) if "," not in of else {}
        return {"type": "array", **({"items": items} if items else {})}
    return {"type": _NAMED[outer]} if outer in _NAMED else {"type": value}
