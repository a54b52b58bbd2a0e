"""The closed word lists of the demo conversations.

Belongs here: lists of values, and the functions that draw one value. Does not belong here: sentences.
The lists are closed on purpose: a two-million-parameter model can only copy what it has met.
"""

import random

CITIES: dict[str, str] = {
    "Berlin": "Germany", "Hamburg": "Germany", "Munich": "Germany", "Paris": "France", "Lyon": "France",
    "Rome": "Italy", "Milan": "Italy", "Madrid": "Spain", "Seville": "Spain", "Lisbon": "Portugal",
    "Oslo": "Norway", "Bergen": "Norway", "Stockholm": "Sweden", "Helsinki": "Finland", "Vienna": "Austria",
    "Prague": "Czechia", "Warsaw": "Poland", "Athens": "Greece", "Cairo": "Egypt", "Nairobi": "Kenya",
    "Tokyo": "Japan", "Osaka": "Japan", "Kyoto": "Japan", "Seoul": "Korea", "Delhi": "India",
    "Mumbai": "India", "Sydney": "Australia", "Perth": "Australia", "Toronto": "Canada", "Montreal": "Canada",
    "Boston": "America", "Chicago": "America", "Denver": "America", "Lima": "Peru", "Quito": "Ecuador",
    "Dublin": "Ireland", "London": "England", "Zurich": "Switzerland", "Geneva": "Switzerland", "Brussels": "Belgium",
}  # fmt: skip
NAMES = (
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Leo", "Mia", "Noah",
    "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor", "Wanda", "Yusuf", "Zoe", "Amir", "Bella", "Carlos", "Dina", "Erik",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LANGUAGES = ("French", "German", "Spanish", "Italian", "Polish", "Japanese", "Korean", "Swedish", "Greek", "Turkish")
CURRENCIES = ("euros", "dollars", "pounds", "yen", "francs", "crowns", "rupees", "pesos")
COMPANIES = ("Acme", "Borealis", "Cobalt", "Delta", "Evergreen", "Fjord", "Globex", "Horizon", "Indigo", "Juniper")
GENRES = ("jazz", "rock", "blues", "folk", "techno", "opera", "soul", "classical")
DISHES = ("soup", "pasta", "curry", "pizza", "salad", "stew", "pancakes", "risotto", "noodles", "tacos")
UNITS = ("meters", "feet", "miles", "kilometers", "pounds", "kilograms", "liters", "gallons")
WORDS = (
    "river", "stone", "cloud", "garden", "window", "forest", "candle", "mirror", "bridge", "harbor", "lantern",
    "meadow", "pencil", "rocket", "silver", "summer", "thunder", "velvet", "winter", "yellow", "basket", "copper",
    "dragon", "feather",
)  # fmt: skip
ERRANDS = (
    "water the plants", "call the dentist", "buy milk", "feed the cat", "pay the rent", "pack the bags",
    "clean the kitchen", "charge the phone", "return the books", "send the report",
)  # fmt: skip
MESSAGES = (
    "I will be late", "see you soon", "happy birthday", "the train is on time", "dinner is ready",
    "the meeting is over", "please call me back", "I found the keys", "we won the game", "the package is here",
)  # fmt: skip
THINGS = ("apples", "books", "coins", "cards", "marbles", "shells", "stamps", "tickets", "pencils", "buttons")
SKIES = ("sunny", "cloudy", "rainy", "windy", "foggy", "snowy")

_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z")
_VOWELS = ("a", "e", "i", "o", "u")
_CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


def made_up_name(rng: random.Random) -> str:
    """Draws a name of two or three random syllables, so that copying is learned rather than a list.

    Args:
        rng: source of randomness.

    Returns:
        A capitalised name such as `Tamiro`.
    """
    return "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(rng.randint(2, 3))).capitalize()


def person(rng: random.Random) -> str:
    """Draws a person's name: mostly a known one, at times a made-up one."""
    return made_up_name(rng) if rng.random() < 0.25 else rng.choice(NAMES)


def company(rng: random.Random) -> str:
    """Draws a company's name: mostly a known one, at times a made-up one."""
    return made_up_name(rng) if rng.random() < 0.25 else rng.choice(COMPANIES)


def code(rng: random.Random) -> str:
    """Draws a parcel number: two letters and four digits, such as `QF-4821`."""
    letters = rng.choice(_CODE_LETTERS) + rng.choice(_CODE_LETTERS)
    return f"{letters}-{rng.randint(0, 9999):04d}"


def clock(rng: random.Random) -> str:
    """Draws a time of day on a quarter hour, such as `18:45`."""
    return f"{rng.randint(7, 22)}:{rng.choice(('00', '15', '30', '45'))}"
