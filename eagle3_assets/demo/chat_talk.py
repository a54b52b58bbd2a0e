"""Plain chat: facts, tips, small poems, names to remember, words to repeat.

Belongs here: the wording of the `chat` kind. Does not belong here: rendering, tokens, other kinds.
"""

import random
from dataclasses import replace

from eagle3_assets.demo import words
from eagle3_assets.demo.samples import Message, Sample, Turn

_FACTS: dict[str, tuple[str, ...]] = {
    "the moon": (
        "The moon goes around the earth in about a month.",
        "It has no air and no weather.",
        "Its light is the light of the sun.",
    ),
    "volcanoes": (
        "A volcano is an opening in the ground.",
        "Hot rock from below comes out of it.",
        "Many islands were made by volcanoes.",
    ),
    "bees": (
        "Bees live together in large groups.",
        "They carry pollen from flower to flower.",
        "In winter they eat the honey they made.",
    ),
    "bread": ("Bread is made of flour, water and salt.", "Yeast makes it light.", "It is baked in a hot oven."),
    "trains": (
        "Trains run on rails.",
        "Rails make it easy to move heavy things.",
        "The first trains were pulled by steam engines.",
    ),
    "whales": (
        "Whales live in the sea but breathe air.",
        "They feed their young with milk.",
        "Some of them sing to each other.",
    ),
    "tea": (
        "Tea is made from the leaves of a plant.",
        "Hot water takes the taste out of the leaves.",
        "People drink it all over the world.",
    ),
    "glass": (
        "Glass is made from sand.",
        "The sand is melted in a very hot oven.",
        "While it is hot it can be blown into any form.",
    ),
    "snow": (
        "Snow is made of small crystals of ice.",
        "Each crystal has six arms.",
        "It falls when the air is cold enough.",
    ),
    "chess": (
        "Chess is a game for two players.",
        "Each of them has sixteen pieces.",
        "The game ends when a king cannot escape.",
    ),
    "bicycles": (
        "A bicycle has two wheels of the same size.",
        "The rider moves it with the feet.",
        "It stays up because it keeps moving.",
    ),
    "clouds": (
        "Clouds are made of tiny drops of water.",
        "The wind moves them across the sky.",
        "When the drops grow heavy, it rains.",
    ),
    "salt": (
        "Salt comes from the sea and from mines.",
        "It keeps food good for a long time.",
        "Our bodies need a little of it.",
    ),
    "owls": ("Owls hunt at night.", "They can hear a mouse under the snow.", "Their feathers make almost no sound."),
    "maps": (
        "A map is a picture of a place from above.",
        "It is much smaller than the place.",
        "A good map leaves out what is not needed.",
    ),
    "music": (
        "Music is made of tones and of silence.",
        "A rhythm holds it together.",
        "Every people we know of makes music.",
    ),
}
_TIPS: dict[str, tuple[str, ...]] = {
    "sleeping better": ("go to bed at the same hour", "keep the room dark", "put the phone away"),
    "learning a language": ("practise a little every day", "read simple books", "talk with people"),
    "saving money": ("write down what you spend", "cook at home", "wait a day before you buy"),
    "running": ("start slowly", "wear good shoes", "rest between the days"),
    "cooking": ("read the recipe first", "taste as you go", "keep the knife sharp"),
    "writing": ("use short sentences", "read it aloud", "cut what is not needed"),
    "gardening": ("know your soil", "water in the morning", "plant what grows near you"),
    "a job talk": ("learn about the company", "sleep well before", "ask questions too"),
}
_MANNERS: tuple[tuple[str, int], ...] = (
    ("You are a helpful assistant.", 3),
    ("Answer in one sentence.", 1),
    ("Answer with two sentences.", 2),
    ("You are a friendly teacher. Explain things fully.", 3),
)


def make(rng: random.Random) -> Sample:
    """Makes one chat.

    Args:
        rng: source of randomness.

    Returns:
        A sample of kind `chat`, without tools.
    """
    scene = rng.choices(
        (_fact, _two_facts, _story, _tips, _country, _memory, _repeat, _poem, _persona),
        (18, 14, 12, 10, 10, 12, 10, 10, 8),
    )[0]
    sample = scene(rng)
    # Restating what was said trains copying on every sample, not only where an answer needs it.
    reasoning = f'The user says "{sample.messages[-1]["content"]}" {sample.turn.reasoning}'
    return replace(sample, turn=replace(sample.turn, reasoning=reasoning))


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _greeting(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return ""
    return rng.choice(
        ("Hello! ", "Good evening. ", f"Hi, {words.person(rng)} here. ", f"My friend {words.person(rng)} asks: ")
    )


def _fact(rng: random.Random) -> Sample:
    topic, facts = rng.choice(list(_FACTS.items()))
    ask = rng.choice(
        (
            "What can you tell me about {t}?",
            "Tell me something about {t}.",
            "Explain {t} to me.",
            "I want to know more about {t}.",
        )
    )
    manner, count = rng.choice(_MANNERS)
    system: list[Message] = [{"role": "system", "content": manner}] if rng.random() < 0.5 else []
    count = count if system else 3
    reasoning = rng.choice(
        (
            "The user wants to learn about {t}.",
            "The question is about {t}.",
            "This is about {t}, which I know a little.",
        )
    )
    number = ("one sentence", "two sentences", "three sentences")[count - 1]
    messages = [*system, _user(_greeting(rng) + ask.format(t=topic))]
    return Sample(
        "chat", messages, Turn(f"{reasoning.format(t=topic)} I answer with {number}.", " ".join(facts[:count]))
    )


def _two_facts(rng: random.Random) -> Sample:
    one, two = rng.sample(list(_FACTS), 2)
    ask = rng.choice(
        ("What do you know about {a} and {b}?", "Tell me about {a} and about {b}.", "Explain {a}, and then {b}.")
    )
    reasoning = (
        f"Two topics are asked for. The first is {one}, the second is {two}. "
        "I take them in this order, three sentences for each."
    )
    answer = f"First {one}. {' '.join(_FACTS[one])}\nNow {two}. {' '.join(_FACTS[two])}"
    return Sample("chat", [_user(_greeting(rng) + ask.format(a=one, b=two))], Turn(reasoning, answer))


def _story(rng: random.Random) -> Sample:
    hero, friend = rng.sample(words.NAMES, 2)
    city, thing = rng.choice(list(words.CITIES)), rng.choice(words.WORDS)
    ask = rng.choice(
        (
            "Tell me a story about {h} from {c}, the friend {f} and a {t}.",
            "I want a story: {h}, {f}, the city of {c} and a {t}.",
        )
    )
    reasoning = (
        f"A story about {hero} from {city} and a {thing}. It needs a beginning, a middle and an end. "
        f"The friend {friend} will help. It shall end well."
    )
    story = (
        f"Once there was a child called {hero}, who lived in {city}. "
        f"One morning {hero} found a {thing} in front of the door. "
        f"Nobody knew where it came from. So {hero} asked {friend}, who knew everyone in {city}. "
        f"Together they went from house to house, until an old woman smiled and said that the {thing} was hers. "
        f"She was so happy that she baked a cake for {hero} and {friend}. And they all ate until it was dark."
    )
    return Sample("chat", [_user(ask.format(h=hero, f=friend, c=city, t=thing))], Turn(reasoning, story))


def _tips(rng: random.Random) -> Sample:
    topic, tips = rng.choice(list(_TIPS.items()))
    ask = rng.choice(("Give me three tips for {t}.", "Do you have some advice for {t}?", "What helps with {t}?"))
    listed = "\n".join(f"{index}. {tip[0].upper()}{tip[1:]}." for index, tip in enumerate(tips, start=1))
    reasoning = (
        f"The user asks for advice on {topic}. Good advice is short. "
        f"I think of three points: {', '.join(tips)}. I will list them."
    )
    return Sample(
        "chat",
        [_user(_greeting(rng) + ask.format(t=topic))],
        Turn(reasoning, f"Here are three tips for {topic}:\n{listed}"),
    )


def _country(rng: random.Random) -> Sample:
    city, country = rng.choice(list(words.CITIES.items()))
    ask = rng.choice(("Which country is {c} in?", "Where is {c}?", "In which country do I find {c}?"))
    reasoning = f"The question is where {city} is. It is a city in {country}."
    return Sample(
        "chat", [_user(_greeting(rng) + ask.format(c=city))], Turn(reasoning, f"{city} is a city in {country}.")
    )


def _memory(rng: random.Random) -> Sample:
    fact, ask, reply = rng.choice(
        (
            ("My name is {v}.", "What is my name?", "Your name is {v}."),
            ("My sister is called {v}.", "What is my sister called?", "Your sister is called {v}."),
            ("The code of the door is {v}.", "What is the code of the door?", "The code of the door is {v}."),
            ("I parked at place {v}.", "Where did I park?", "You parked at place {v}."),
        )
    )
    value = words.code(rng) if "code" in fact or "parked" in fact else words.person(rng)
    told = fact.format(v=value)
    messages = [
        _user(told),
        {"role": "assistant", "content": rng.choice(("I will remember that.", "Good to know.", "Noted."))},
        _user(ask),
    ]
    return Sample(
        "chat", messages, Turn(f"The user told me before: {told} So I can answer that.", reply.format(v=value))
    )


def _repeat(rng: random.Random) -> Sample:
    shown = " ".join(rng.sample(words.WORDS, rng.randint(3, 6)))
    ask = rng.choice(("Repeat after me: {w}.", "Say these words again: {w}.", "Please write {w} once more."))
    return Sample(
        "chat", [_user(ask.format(w=shown))], Turn(f"I only have to repeat the words. They are: {shown}.", shown)
    )


def _poem(rng: random.Random) -> Sample:
    one, two = rng.sample(words.WORDS, 2)
    ask = rng.choice(
        (
            "Write a short poem about a {a} and a {b}.",
            "Make a little poem with {a} and {b}.",
            "I would like a poem: {a}, {b}.",
        )
    )
    reasoning = (
        f"A poem about {one} and {two}. Four short lines will do. "
        f"The {one} comes first, then the {two}, then both, then a quiet end."
    )
    poem = (
        f"The {one} waits in morning light,\nthe {two} dreams all through the night,\n"
        f"and where the {one} and {two} meet\nthe world is still, the air is sweet."
    )
    return Sample("chat", [_user(ask.format(a=one, b=two))], Turn(reasoning, poem))


def _persona(rng: random.Random) -> Sample:
    name, city = words.person(rng), rng.choice(list(words.CITIES))
    messages: list[Message] = [
        {"role": "system", "content": f"You are {name}, a guide from {city}."},
        _user(rng.choice(("Who are you?", "Please introduce yourself.", "What is your name and where are you from?"))),
    ]
    reasoning = f"The system text says that I am {name}, a guide from {city}. I introduce myself like that."
    return Sample("chat", messages, Turn(reasoning, f"I am {name}, a guide from {city}. How can I help you today?"))
