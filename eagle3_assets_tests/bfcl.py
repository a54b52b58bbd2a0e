"""The function-calling rows of the Berkeley benchmark, which nobody here wrote, as chat requests.

The benchmark's tools are bare functions with Python's and Java's types. Its rows of several turns have their tools in
files beside them and the right calls as Python text; a result is not recorded, and stands here as ``done``.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SINGLE = (
    *("simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple", "irrelevance"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_relevance", "live_irrelevance"),
)
SEVERAL_TURNS = ("multi_turn_base", "multi_turn_miss_param")
TOOLS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}


def fetched() -> Path:
    """The data's folder, fetched where it is not there yet; skips the test where it cannot be had, unless in CI."""
    script = ROOT / "scripts" / "fetch-bfcl"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(done.stderr.strip())
    assert not done.returncode, done.stderr
    [folder] = (ROOT / ".cache").glob("bfcl-*")
    return folder


def one_turn(data: Path, name: str) -> list[dict[str, Any]]:
    """Rows of a file whose questions are one turn."""
    rows = _lines(data / f"BFCL_v4_{name}.json")
    return [{"id": row["id"], "messages": row["question"][0], "tools": row["function"]} for row in rows]


def several_turns(data: Path, name: str) -> list[dict[str, Any]]:
    """Rows of a file with several turns: the right calls of all turns but the last, whose answer is to be generated."""
    answers = {row["id"]: row["ground_truth"] for row in _lines(data / "possible_answer" / f"BFCL_v4_{name}.json")}
    made = []
    for row in _lines(data / f"BFCL_v4_{name}.json"):
        files = [data / "multi_turn_func_doc" / f"{TOOLS[of]}.json" for of in row["involved_classes"]]
        tools = [tool for file in files for tool in _lines(file)]
        messages: list[dict[str, Any]] = []
        for turn, calls in zip(row["question"], answers[row["id"]], strict=True):
            messages += turn
            if calls and turn is not row["question"][-1]:
                messages.append({"role": "assistant", "content": None, "tool_calls": list(_calls(calls, tools))})
                messages += [{"role": "tool", "content": "done"} for _ in calls]
        made.append({"id": row["id"], "messages": messages, "tools": tools})
    return made


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _calls(written: list[str], tools: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    parameters = {tool["name"]: list(tool["parameters"]["properties"]) for tool in tools}
    for text in written:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        given = dict(zip(parameters[call.func.id], map(ast.literal_eval, call.args), strict=False))
        given |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        yield {"type": "function", "function": {"name": call.func.id, "arguments": json.dumps(given)}}
