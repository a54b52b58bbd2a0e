"""Conversations that call tools: the demo's tools, how people ask for them, and what a good turn looks like.

Belongs here: the wording of the `function_calling` kind. Does not belong here: rendering, tokens, other kinds.
"""

import json
import random
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eagle3_assets.demo import words
from eagle3_assets.demo.samples import Call, Message, Sample, ToolSchema, Turn, assistant_message

Value = str | int
Draw = Callable[[random.Random], Value]

_CHOICES = ("I can use", "The right tool is", "That needs", "I need")
_CLOSINGS = ("Nothing is missing, so I call it.", "I will call it now.", "That is all it needs.", "One call is enough.")
_PARALLEL_CLOSINGS = (
    "The calls do not depend on each other, so I make them together.",
    "I will make all calls at once.",
)
_LEADS = ("Let me look that up.", "I will check that for you.", "One moment, please.", "Sure, I will do that.")


@dataclass(frozen=True)
class Slot:
    """A parameter of a demo tool.

    Attributes:
        draw: draws a value.
        json_type: its JSON schema type.
    """

    draw: Draw
    json_type: str = "string"


@dataclass(frozen=True)
class Tool:
    """A demo tool.

    Attributes:
        description: what the schema says of it.
        goal: what a person wants who needs it, as the reasoning puts it.
        slots: its parameters by name.
        asks: ways to ask for it, with the slots to fill; a slot that is not mentioned is left out of the call.
        result: a result beyond the arguments, by field.
        answer: how to report the result, from arguments and result.
    """

    description: str
    goal: str
    slots: Mapping[str, Slot]
    asks: tuple[str, ...]
    result: Mapping[str, Draw]
    answer: str


def _pick(*values: Value) -> Draw:
    return lambda rng: rng.choice(values)


def _number(low: int, high: int) -> Draw:
    return lambda rng: rng.randint(low, high)


_CITY = Slot(_pick(*words.CITIES))
_DAY = Slot(_pick(*words.DAYS))
_TIME = Slot(words.clock)
_PEOPLE = Slot(_number(2, 12), "integer")

TOOLS: dict[str, Tool] = {
    "get_weather": Tool(
        "Get the weather in a city",
        "the weather",
        {"city": _CITY, "day": _DAY, "unit": Slot(_pick("celsius", "fahrenheit"))},
        (
            "What is the weather in {city}?",
            "How is the weather in {city} on {day}?",
            "Tell me the weather in {city} in {unit}.",
            "Will it rain in {city} on {day}?",
            "I am going to {city} on {day}, what will the weather be like in {unit}?",
        ),
        {"degrees": _number(1, 35), "sky": _pick(*words.SKIES)},
        "It is {sky} in {city}, with {degrees} degrees.",
    ),
    "get_time": Tool(
        "Get the local time in a city",
        "the local time",
        {"city": _CITY},
        ("What time is it in {city}?", "Tell me the local time in {city}.", "How late is it in {city} now?"),
        {"time": words.clock},
        "It is {time} in {city} now.",
    ),
    "convert_currency": Tool(
        "Convert an amount of money",
        "a currency conversion",
        {
            "amount": Slot(_number(2, 999), "integer"),
            "source": Slot(_pick(*words.CURRENCIES)),
            "target": Slot(_pick(*words.CURRENCIES)),
        },
        (
            "Convert {amount} {source} to {target}.",
            "How much is {amount} {source} in {target}?",
            "I have {amount} {source}. What is that in {target}?",
        ),
        {"result": _number(2, 999)},
        "{amount} {source} are {result} {target}.",
    ),
    "convert_units": Tool(
        "Convert a measured value",
        "a unit conversion",
        {
            "value": Slot(_number(2, 999), "integer"),
            "source": Slot(_pick(*words.UNITS)),
            "target": Slot(_pick(*words.UNITS)),
        },
        (
            "How many {target} are {value} {source}?",
            "Change {value} {source} into {target}.",
            "Express {value} {source} in {target}.",
        ),
        {"result": _number(2, 999)},
        "{value} {source} are {result} {target}.",
    ),
    "set_reminder": Tool(
        "Set a reminder",
        "a reminder",
        {"text": Slot(_pick(*words.ERRANDS)), "day": _DAY, "time": _TIME},
        (
            "Remind me to {text} on {day}.",
            "Remind me to {text} on {day} at {time}.",
            "Set a reminder for {day} at {time}: {text}.",
            "I must not forget to {text} on {day} at {time}.",
        ),
        {"status": _pick("saved")},
        "I will remind you to {text}.",
    ),
    "send_message": Tool(
        "Send a message to a person",
        "a message to someone",
        {"recipient": Slot(words.person), "text": Slot(_pick(*words.MESSAGES))},
        ("Tell {recipient} that {text}.", "Send {recipient} a message: {text}.", "Write to {recipient}: {text}."),
        {"status": _pick("sent")},
        "I have sent your message to {recipient}.",
    ),
    "book_table": Tool(
        "Book a table in a restaurant",
        "a table in a restaurant",
        {"city": _CITY, "people": _PEOPLE, "day": _DAY, "time": _TIME},
        (
            "Book a table for {people} in {city} on {day}.",
            "Please reserve a table for {people} people in {city} on {day} at {time}.",
            "I need a table in {city} for {people} people at {time}.",
        ),
        {"number": _number(100, 999)},
        "Your table in {city} is booked, the number is {number}.",
    ),
    "search_flights": Tool(
        "Search flights between two cities",
        "flights",
        {"origin": _CITY, "destination": _CITY, "day": _DAY},
        (
            "Find a flight from {origin} to {destination}.",
            "Find a flight from {origin} to {destination} on {day}.",
            "I want to fly to {destination} from {origin} on {day}.",
            "Which flights go from {origin} to {destination} on {day}?",
        ),
        {"departure": words.clock, "price": _number(50, 900)},
        "There is a flight from {origin} to {destination} at {departure} for {price} euros.",
    ),
    "get_stock_price": Tool(
        "Get the price of a share",
        "a share price",
        {"company": Slot(words.company)},
        ("What is the share price of {company}?", "How much is a share of {company}?", "Check the stock of {company}."),
        {"price": _number(5, 999)},
        "A share of {company} costs {price} dollars.",
    ),
    "track_package": Tool(
        "Track a package by its number",
        "the place of a package",
        {"number": Slot(words.code)},
        ("Where is package {number}?", "Track my package {number}.", "Has the package {number} arrived?"),
        {"place": _pick(*words.CITIES)},
        "The package {number} is in {place}.",
    ),
    "play_music": Tool(
        "Play music of a genre",
        "music",
        {"genre": Slot(_pick(*words.GENRES)), "volume": Slot(_number(5, 95), "integer")},
        ("Play some {genre}.", "Play {genre} at volume {volume}.", "I would like to hear {genre} at {volume} percent."),
        {"status": _pick("playing")},
        "I am playing {genre} for you.",
    ),
    "find_recipe": Tool(
        "Find a recipe",
        "a recipe",
        {"dish": Slot(_pick(*words.DISHES)), "people": _PEOPLE},
        (
            "Find a recipe for {dish}.",
            "How do I cook {dish} for {people} people?",
            "I need a {dish} recipe for {people}.",
        ),
        {"minutes": _number(10, 90)},
        "I found a recipe for {dish}, it takes {minutes} minutes.",
    ),
    "translate": Tool(
        "Translate a word",
        "a translation",
        {"word": Slot(_pick(*words.WORDS)), "language": Slot(_pick(*words.LANGUAGES))},
        ("Translate {word} into {language}.", "What is {word} in {language}?", "How do you say {word} in {language}?"),
        {"translation": words.made_up_name},
        "In {language}, {word} is {translation}.",
    ),
}


@dataclass(frozen=True)
class _Request:
    """One thing that a user asks for: the sentence, and the call that serves it."""

    text: str
    call: Call

    @property
    def tool(self) -> Tool:
        return TOOLS[self.call.name]


def schema(name: str) -> ToolSchema:
    """Declares a demo tool in the OpenAI shape.

    Args:
        name: a key of `TOOLS`.

    Returns:
        The schema; slots that every way of asking mentions are required.
    """
    tool = TOOLS[name]
    properties = {slot: {"type": spec.json_type} for slot, spec in tool.slots.items()}
    required = [slot for slot in tool.slots if all(slot in _fields(ask) for ask in tool.asks)]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": tool.description, "parameters": parameters}}


def make(rng: random.Random) -> Sample:
    """Makes one conversation with tools.

    Args:
        rng: source of randomness.

    Returns:
        A sample of kind `function_calling`: a single call, parallel calls, an answer from results, a later
        request, small talk beside tools, or a request that no declared tool serves.
    """
    scene = rng.choices((_single, _parallel, _report, _follow_up, _small_talk, no_tool), (42, 18, 14, 14, 6, 6))[0]
    return scene(rng)


def _fields(template: str) -> list[str]:
    return [field for _, field, _, _ in string.Formatter().parse(template) if field]


def _request(rng: random.Random, name: str) -> _Request:
    tool = TOOLS[name]
    ask = rng.choice(tool.asks)
    mentioned = set(_fields(ask))
    arguments: dict[str, Value] = {}
    for slot, spec in tool.slots.items():
        if slot in mentioned:
            value = spec.draw(rng)
            while value in arguments.values():
                value = spec.draw(rng)
            arguments[slot] = value
    return _Request(ask.format(**arguments), Call(name, arguments))


def _declare(rng: random.Random, needed: set[str]) -> list[ToolSchema]:
    others = [name for name in TOOLS if name not in needed]
    names = sorted(needed) + rng.sample(others, rng.choice((0, 1, 1, 2, 2, 3)))
    rng.shuffle(names)
    return [schema(name) for name in names]


def _draft(call: Call) -> str:
    # The reasoning drafts the arguments as they will stand in the call: writing the call is then plain copying.
    return f"{call.name} with {json.dumps(dict(call.arguments))}"


def _opening(said: str, tools: list[ToolSchema]) -> str:
    # Listing the tools brings their names close to the place where one is chosen.
    return f'The user says "{said}" The tools are {", ".join(tool["function"]["name"] for tool in tools)}.'


def _call_turn(rng: random.Random, said: str, request: _Request, tools: list[ToolSchema]) -> Turn:
    reasoning = f"{_opening(said, tools)} {rng.choice(_CHOICES)} {_draft(request.call)}. {rng.choice(_CLOSINGS)}"
    lead = rng.choice(_LEADS) if rng.random() < 0.2 else ""
    return Turn(reasoning, lead, (request.call,))


def _parallel_turn(rng: random.Random, requests: list[_Request]) -> Turn:
    parts = [f"There are {len(requests)} requests."]
    for index, request in enumerate(requests, start=1):
        parts.append(f'Request {index} is "{request.text}" That is {_draft(request.call)}.')
    parts.append(rng.choice(_PARALLEL_CLOSINGS))
    return Turn(" ".join(parts), "", tuple(request.call for request in requests))


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _system(rng: random.Random) -> list[Message]:
    texts = (
        "You are a helpful assistant with tools.",
        "Use the tools where they help.",
        "You are a careful assistant.",
    )
    return [{"role": "system", "content": rng.choice(texts)}] if rng.random() < 0.3 else []


def _single(rng: random.Random) -> Sample:
    request = _request(rng, rng.choice(list(TOOLS)))
    polite = rng.choice(("", "", "", "Hello! ", "Please help me. ", "Hi, a question. "))
    text = polite + request.text
    tools = _declare(rng, {request.call.name})
    messages = [*_system(rng), _user(text)]
    return Sample("function_calling", messages, _call_turn(rng, text, request, tools), tools)


def _requests(rng: random.Random) -> list[_Request]:
    count = rng.choice((2, 2, 2, 2, 3))
    same = rng.random() < 0.5
    names = [rng.choice(list(TOOLS))] * count if same else rng.sample(list(TOOLS), count)
    return [_request(rng, name) for name in names]


def _joined(rng: random.Random, requests: list[_Request]) -> str:
    link = rng.choice((" ", " And: ", " Also: ", " Then: "))
    return link.join(request.text for request in requests)


def _parallel(rng: random.Random) -> Sample:
    requests = _requests(rng)
    messages = [*_system(rng), _user(_joined(rng, requests))]
    tools = _declare(rng, {request.call.name for request in requests})
    return Sample("function_calling", messages, _parallel_turn(rng, requests), tools)


def _results(rng: random.Random, requests: list[_Request], first_call: int) -> tuple[list[Message], list[str]]:
    messages: list[Message] = []
    answers: list[str] = []
    for index, request in enumerate(requests):
        result = {field: draw(rng) for field, draw in request.tool.result.items()}
        call_id = f"functions.{request.call.name}:{first_call + index}"
        messages.append({"role": "tool", "tool_call_id": call_id, "content": json.dumps(result)})
        known: dict[str, Any] = {**dict.fromkeys(request.tool.slots, "that"), **request.call.arguments, **result}
        answers.append(request.tool.answer.format(**known))
    return messages, answers


def _report_turn(rng: random.Random, requests: list[_Request], results: list[Message], answers: list[str]) -> Turn:
    seen = " ".join(
        f"{request.call.name} returned {result['content']}." for request, result in zip(requests, results, strict=True)
    )
    closing = rng.choice(("That answers the question.", "No further call is needed.", "I can tell the user now."))
    return Turn(f"{seen} {closing}", " ".join(answers))


def _report(rng: random.Random) -> Sample:
    requests = _requests(rng) if rng.random() < 0.3 else [_request(rng, rng.choice(list(TOOLS)))]
    tools = _declare(rng, {request.call.name for request in requests})
    if len(requests) > 1:
        asked = _parallel_turn(rng, requests)
    else:
        asked = _call_turn(rng, requests[0].text, requests[0], tools)
    results, answers = _results(rng, requests, 0)
    messages = [
        *_system(rng),
        _user(_joined(rng, requests)),
        assistant_message(asked, 0, reasoning=rng.random() < 0.5),
        *results,
    ]
    return Sample("function_calling", messages, _report_turn(rng, requests, results, answers), tools)


def _follow_up(rng: random.Random) -> Sample:
    first, second = (_request(rng, rng.choice(list(TOOLS))) for _ in range(2))
    results, answers = _results(rng, [first], 0)
    text = rng.choice(("", "Thanks. ", "Good. ", "And now: ")) + second.text
    tools = _declare(rng, {first.call.name, second.call.name})
    messages = [
        *_system(rng),
        _user(first.text),
        assistant_message(_call_turn(rng, first.text, first, tools), 0, reasoning=rng.random() < 0.5),
        *results,
        {"role": "assistant", "content": " ".join(answers)},
        _user(text),
    ]
    return Sample("function_calling", messages, _call_turn(rng, text, second, tools), tools)


def _small_talk(rng: random.Random) -> Sample:
    text, reply = rng.choice(
        (
            ("Thank you, {name} is happy now.", "You are welcome! Greetings to {name}."),
            ("Hello, my name is {name}.", "Hello {name}, what can I do for you?"),
            ("Good morning, {name} here.", "Good morning, {name}! How can I help?"),
            ("I am {name} and I only wanted to say hello.", "That is kind of you, {name}. Hello!"),
        )
    )
    name = words.person(rng)
    said = text.format(name=name)
    tools = _declare(rng, set()) or [schema("get_time")]
    reasoning = f"{_opening(said, tools)} This is only talk, no tool is needed. I answer in words."
    turn = Turn(reasoning, reply.format(name=name))
    return Sample("function_calling", [*_system(rng), _user(said)], turn, tools)


def no_tool(rng: random.Random) -> Sample:
    """Makes a request that no declared tool serves.

    Args:
        rng: source of randomness.

    Returns:
        A sample of kind `function_calling`.
    """
    request = _request(rng, rng.choice(list(TOOLS)))
    others = [name for name in TOOLS if name != request.call.name]
    tools = [schema(name) for name in rng.sample(others, rng.choice((1, 1, 2, 3)))]
    reasoning = f"{_opening(request.text, tools)} None of them is for {request.tool.goal}, so I say so."
    turn = Turn(reasoning, f"I am sorry, I have no tool for {request.tool.goal}.")
    return Sample("function_calling", [*_system(rng), _user(request.text)], turn, tools)
