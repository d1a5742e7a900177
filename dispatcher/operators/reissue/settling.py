"""What is booked of a reissue once its new key is written: in the plan, and of the old decision."""

from uuid import UUID

from dispatcher.operators.common.session import OperatorSession, Row, actor
from sink.contract.key import Key
from sink.contract.states import ReplayState


class ReissueSettling(OperatorSession):
    """Bookings of reissues, in the caller's transaction."""

    def _settle(self, id_: UUID, item: Row, detail: str) -> list[int]:
        """Mark an entry as written and give up what is dead of the old one, with an audit row.

        Returns the numbers of these dead letters. One that is marked already stays as it is.
        """
        key, new_key = Key(item["key"]).text, Key(item["new_key"]).text
        done = {"id": id_, "place": item["place"], "detail": detail}
        if not self._run("reissue/settle", done).rowcount:
            return []
        ids = [row["id"] for row in self._all("reissue/dead", item)]
        given = {"ids": ids, "actor": actor()}
        self._run("dead_letters/lock", given)
        buried = [row["id"] for row in self._all("reissue/bury", given)]
        self._run("dead_letters/pass", {"ids": buried})
        self._run("reissue/finish", {"id": id_})
        said = {"new_key": new_key, "replay": id_, "dead_letters": buried}
        self._audit("reissue", key, item["reason"], said)
        return buried

    def _settle_written(self, id_: UUID) -> bool:
        """Book what was written by somebody who died before booking it; returns if it was all."""
        for item in self._all("reissue/written", {"id": id_}):
            self._settle(id_, item, "was written before, and booked when it was cancelled")
        return bool(self._one("common/replay_take", {"id": id_})["state"] == ReplayState.APPLIED)
