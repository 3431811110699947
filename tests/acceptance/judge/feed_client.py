"""A client of the event feed that shares no code with the server: it keeps the objects of a contest from the
feed alone, comes back with its token after the connection broke, and computes a scoreboard from the objects
by the rules of the specification."""

import http.client
import json
import re
import threading
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
AGAIN_SECONDS = 0.1


@dataclass
class FeedClient:
    host: str
    port: int
    contest: str
    token: str | None
    """The client's password; None for a spectator."""
    objects: dict[str, dict[str, Object]] = field(default_factory=dict[str, dict[str, Object]])
    singles: dict[str, Object] = field(default_factory=dict[str, Object])
    tokens: list[int] = field(default_factory=list[int])
    connections: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)
    held: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Until it is stopped. A broken connection is made again, from the last token."""
        while not self.stopped.is_set():
            try:
                self._follow()
            except (OSError, http.client.HTTPException):
                self.stopped.wait(AGAIN_SECONDS)

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else -1

    def _follow(self) -> None:
        since = f"?since_token={self.last}" if self.tokens else ""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request("GET", f"/api/contests/{self.contest}/event-feed{since}", headers=headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                answer.read()
                self.stopped.wait(AGAIN_SECONDS)
                return
            self.connections += 1
            if not self.tokens:
                with self.held:
                    self.objects.clear()
            # A line without its end was cut off: the connection broke within it.
            while not self.stopped.is_set() and (line := answer.readline()).endswith(b"\n"):
                if line.strip():
                    with self.held:
                        self._apply(json.loads(line))
        finally:
            connection.close()

    def _apply(self, event: Object) -> None:
        kind, key, data = event["type"], event["id"], event["data"]
        if key is None:
            self.singles[kind] = data
        elif data is None:
            self.objects.get(kind, {}).pop(key, None)
        else:
            self.objects.setdefault(kind, {})[key] = data
        if "token" in event:
            self.tokens.append(int(event["token"]))

    def scoreboard(self) -> list[Object]:
        """The rows of a pass-fail contest."""
        with self.held:
            rows = [self._row(one) for one in self._all("teams") if not one.get("hidden")]
        rows.sort(key=lambda row: (*_merit(row), row["name"]))
        for place, row in enumerate(rows):
            equal = place > 0 and _merit(rows[place - 1]) == _merit(row)
            row["rank"] = rows[place - 1]["rank"] if equal else place + 1
        for row in rows:
            del row["name"]
        return rows

    def _all(self, kind: str) -> list[Object]:
        return list(self.objects.get(kind, {}).values())

    def _row(self, team: Object) -> Object:
        problems = [
            self._cell(team["id"], one) for one in sorted(self._all("problems"), key=lambda p: p["ordinal"])
        ]
        solved = [one for one in problems if one["solved"]]
        tries = self.singles["contest"]["penalty_time"]
        score = {
            "num_solved": len(solved),
            "total_time": sum(one["time"] + tries * one.pop("rejected") for one in solved),
        }
        for one in problems:
            one.pop("rejected", None)
        if solved:
            score["time"] = max(one["time"] for one in solved)
        name = team.get("display_name") or team["name"]
        return {"rank": 0, "team_id": team["id"], "score": score, "problems": problems, "name": name}

    def _cell(self, team: str, problem: Object) -> Object:
        types = self.objects["judgement-types"]
        verdicts = {one["submission_id"]: types[one["judgement_type_id"]] for one in self._all("judgements")}
        length = _ms(self.singles["contest"]["duration"])
        sent = [
            one
            for one in self._all("submissions")
            if one["team_id"] == team
            and one["problem_id"] == problem["id"]
            and 0 <= _ms(one["contest_time"]) < length
        ]
        sent.sort(key=lambda one: (_ms(one["contest_time"]), int(one["id"])))
        cell: Object = {
            "problem_id": problem["id"],
            "num_judged": 0,
            "num_pending": 0,
            "solved": False,
            "rejected": 0,
        }
        for one in sent:
            verdict = verdicts.get(one["id"])
            if verdict is None:
                cell["num_pending"] += 1
                continue
            cell["num_judged"] += 1
            if verdict["solved"]:
                return {**cell, "solved": True, "time": _ms(one["contest_time"]) // 60_000}
            cell["rejected"] += bool(verdict["penalty"])
        return cell


def _merit(row: Object) -> tuple[int, int, int]:
    score = row["score"]
    return -score["num_solved"], score["total_time"], score.get("time", 0)


def _ms(span: str) -> int:
    found = re.fullmatch(r"(-?)(\d+):(\d\d):(\d\d)\.(\d{3})", span)
    assert found is not None, span
    hours, minutes, seconds, ms = (int(found[place]) for place in range(2, 6))
    return (-1 if found[1] else 1) * (((hours * 60 + minutes) * 60 + seconds) * 1000 + ms)
