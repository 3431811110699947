"""What can be wrong in a function: each operator finds its places, and says what stands there instead."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.mutants.grammar import Function, Word, words

# Where the operand of an AND or an OR ends, to either side.
AFTER = {
    *("and", "or", "then", "loop", "order", "group", "limit", "for", "returning", "union", "when", "else"),
    *("where", "from", "on", "do", "having", "into", ";", ",", "left", "join", "end", "using", "offset"),
}
BEFORE = {"and", "or", "where", "if", "elsif", "when", "on", ",", ":=", "return", "select", "then"}
FLIPPED = {"=": "<>", "<>": "=", "<": "<=", "<=": "<", ">": ">=", ">=": ">"}
STATEMENTS = {"perform", "raise", "continue"}
STARTS = {";", "then", "else", "begin", "loop"}
OPTIONS = {"errcode", "detail", "hint"}


@dataclass(frozen=True)
class Change:
    """What is replaced, by what, and the words around it that a reader knows it by."""

    first: int
    last: int
    start: int
    end: int
    instead: str


def change(found: Sequence[Word], first: int, last: int, instead: str = "", *, around: int = 0) -> Change:
    """The words from first to last, both included."""
    return Change(
        max(0, first - around),
        min(len(found) - 1, last + around),
        found[first].start,
        found[last].end,
        instead,
    )


@dataclass(frozen=True)
class Mutant:
    """A function with one thing wrong in it. The name is the same as long as that place is."""

    function: Function
    name: str
    start: int
    end: int
    instead: str

    @property
    def unit(self) -> str:
        return self.function.name

    @property
    def text(self) -> str:
        whole = self.function.text
        return whole[: self.start] + self.instead + whole[self.end :]


def mutants(function: Function) -> list[Mutant]:
    found = words(function)
    seen: Counter[str] = Counter()
    made: list[Mutant] = []
    for kind, operator in OPERATORS.items():
        for one in operator(found):
            around = function.text[found[one.first].start : found[one.last].end]
            title = f"{function.name}: {kind}: {short(around)}"
            seen[title] += 1
            name = title if seen[title] == 1 else f"{title} ({seen[title]})"
            made.append(Mutant(function, name, one.start, one.end, one.instead))
    return made


def short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:50]}…{line[-29:]}"


def drop_operands(joint: str) -> Callable[[Sequence[Word]], Iterator[Change]]:
    """`a and b and c` without a, without b, without c; the same for OR."""

    def find(found: Sequence[Word]) -> Iterator[Change]:
        for index, word in enumerate(found):
            if word.text != joint or _of_between(found, index):
                continue
            yield change(found, index, _right(found, index) - 1)
            left = _left(found, index)
            if left == 0 or found[left - 1].text != joint or found[left - 1].depth != word.depth:
                yield change(found, left, index)

    return find


def _right(found: Sequence[Word], joint: int) -> int:
    """The index behind the operand."""
    depth = found[joint].depth
    index = joint + 1
    while index < len(found):
        word = found[index]
        if word.depth < depth or (word.depth == depth and word.text in AFTER and not _distinct(found, index)):
            break
        if word.depth == depth and word.text == "case":
            index = _closing(found, index, "end")
        elif word.depth == depth and word.text == "between":
            index = _and_of_between(found, index)
        index += 1
    return index


def _left(found: Sequence[Word], joint: int) -> int:
    """The index of the operand's first word."""
    depth = found[joint].depth
    index = joint
    while index > 0:
        word = found[index - 1]
        if word.depth < depth or (
            word.depth == depth and word.text in BEFORE and not _of_between(found, index - 1)
        ):
            break
        index -= 1
    return index


def _distinct(found: Sequence[Word], index: int) -> bool:
    return found[index].text == "from" and found[index - 1].text == "distinct"


def _of_between(found: Sequence[Word], index: int) -> bool:
    if found[index].text != "and":
        return False
    depth = found[index].depth
    for word in reversed(found[:index]):
        if word.depth < depth or (word.depth == depth and word.text in {"and", "or", "where", "if", ";"}):
            return False
        if word.depth == depth and word.text == "between":
            return True
    return False


def _and_of_between(found: Sequence[Word], index: int) -> int:
    return _closing(found, index, "and")


def _closing(found: Sequence[Word], opening: int, text: str = ")") -> int:
    depth = found[opening].depth
    return next(
        index
        for index in range(opening + 1, len(found))
        if found[index].text == text and found[index].depth == depth
    )


def flip_comparisons(found: Sequence[Word]) -> Iterator[Change]:
    """Not what an UPDATE assigns, nor the options of a RAISE."""
    assigning: set[int] = set()
    for index, word in enumerate(found):
        if word.text == "set":
            assigning.add(word.depth)
        elif word.text in {"where", "from", "returning", ";"} and not _distinct(found, index):
            assigning.discard(word.depth)
        elif word.text in {")", "]"}:
            assigning = {depth for depth in assigning if depth <= word.depth}
        elif word.text in FLIPPED and word.depth not in assigning and found[index - 1].text not in OPTIONS:
            yield change(found, index, index, FLIPPED[word.text], around=3)


def flip_null_tests(found: Sequence[Word]) -> Iterator[Change]:
    for index, (word, follower) in enumerate(pairwise(found)):
        if word.text != "is":
            continue
        if follower.text in {"null", "distinct"}:
            yield change(found, index, index, "is not", around=3)
        elif follower.text == "not":
            yield change(found, index, index + 1, "is", around=3)


def drop_negations(found: Sequence[Word]) -> Iterator[Change]:
    for index, word in enumerate(found):
        if word.text == "not" and found[index - 1].text != "is" and found[index + 1].text != "null":
            yield change(found, index, index, around=3)


def negate(found: Sequence[Word]) -> Iterator[Change]:
    """`if found`, `if exists`: the other way round."""
    for index, word in enumerate(found):
        if word.text in {"found", "exists"} and found[index - 1].text in BEFORE:
            yield change(found, index, index, f"not {word.text}", around=5)


def drop_locks(found: Sequence[Word]) -> Iterator[Change]:
    for index, word in enumerate(found):
        if word.text == "for" and _strength(found, index + 1):
            end = index + 1 + _strength(found, index + 1)
            if _texts(found, end, 2) == ["skip", "locked"]:
                yield change(found, end, end + 1, around=6)
                end += 2
            yield change(found, index, end - 1, around=6)
        if word.text == "pg_try_advisory_xact_lock":
            yield change(found, index, _closing(found, index + 1), "true")


def _strength(found: Sequence[Word], index: int) -> int:
    for lock in (["update"], ["share"], ["key", "share"], ["no", "key", "update"]):
        if _texts(found, index, len(lock)) == lock:
            return len(lock)
    return 0


def _texts(found: Sequence[Word], index: int, count: int) -> list[str]:
    return [word.text for word in found[index : index + count]]


def drop_steps(found: Sequence[Word]) -> Iterator[Change]:
    """`+ 1` and `- 1`."""
    for index, (word, follower) in enumerate(pairwise(found)):
        if word.text in {"+", "-"} and follower.text == "1":
            yield change(found, index, index + 1, around=3)


def drop_statements(found: Sequence[Word]) -> Iterator[Change]:
    """A check, a lock, an event, a refusal, another look: left out."""
    for index, word in enumerate(found):
        if word.text in STATEMENTS and (index == 0 or found[index - 1].text in STARTS):
            yield change(found, index, _closing(found, index, ";"), "null;")


OPERATORS: dict[str, Callable[[Sequence[Word]], Iterator[Change]]] = {
    "without the conjunct": drop_operands("and"),
    "without the alternative": drop_operands("or"),
    "flipped": flip_comparisons,
    "null the other way round": flip_null_tests,
    "without the not": drop_negations,
    "negated": negate,
    "without the lock": drop_locks,
    "without the step": drop_steps,
    "without the statement": drop_statements,
}
