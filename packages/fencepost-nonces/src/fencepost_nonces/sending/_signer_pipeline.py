"""The transactions of one signer: each advances in order of nonce, as far as it can in one turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeVar

from fencepost.client import Fencepost
from fencepost.crashpoints import crash_point
from fencepost.errors import FencepostError, InvalidInput, Refusal
from fencepost.kernel.call import Call
from fencepost.kernel.lease import Lease
from fencepost.logs import get_logger
from fencepost_nonces import _nonce_calls as nonce_calls
from fencepost_nonces import _queries as queries
from fencepost_nonces._errors import ContradictingAnswers
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from fencepost_nonces.sending import _fees as fee_rules
from fencepost_nonces.sending import _transaction_calls as tx_calls
from fencepost_nonces.sending._classification import Meaning, told
from fencepost_nonces.sending._decoding import fees_of
from fencepost_nonces.sending._fees import GWEI, Fees, Market, Speed
from fencepost_nonces.sending._gas import estimated
from fencepost_nonces.sending._inquiry import Inquiry
from fencepost_nonces.sending._keys import Keys
from fencepost_nonces.sending._next_step import (
    ChainView,
    NextStep,
    Receipt,
    StuckPolicy,
    after_sending,
    before_sending,
)
from fencepost_nonces.sending._nonce_use import Finding, Use
from fencepost_nonces.sending._rpc import Chain, Counts
from fencepost_nonces.sending._transaction_calls import GAS_MIN, Open, TransactionRequest
from fencepost_nonces.signer import Signer, checksummed

_log = get_logger(__name__)
T = TypeVar("T")
UNPROVED = "unproved: its nonce is used, and nothing proves by which transaction. It keeps the nonce. "
FEE_CAP = "fee_cap: the chain asks for more than NONCES_MAX_FEE_GWEI. It waits."
OWN_FEE_CAP = "fee_cap: the chain asks for more than its own fee_cap. It waits."
# After these the signer's later transactions must wait: they would fail in the same way.
_STOPPING = frozenset(
    {Meaning.INSUFFICIENT_FUNDS, Meaning.NONCE_TOO_HIGH, Meaning.POOL_FULL, Meaning.PASSING}
)


class SignerPipeline:
    """The transactions of one signer, for one turn."""

    def __init__(
        self,
        fp: Fencepost,
        node: Node,
        chain: Chain,
        keys: Keys,
        metrics: NonceMetrics,
        signer: Signer,
        *,
        away: bool = False,
    ) -> None:
        """`away`: this node is not the signer's home, and the home does not serve it."""
        self._away = away
        self._fp = fp
        self._node = node
        self._chain = chain
        self._keys = keys
        self._metrics = metrics
        self._signer = signer
        self._settings: NoncesSettings = node.settings
        self._patience = StuckPolicy(self._settings.confirmations, self._settings.stuck_seconds)
        self._cap = round(self._settings.max_fee_gwei * GWEI)
        self._market: Market | None = None
        self._paid_tips: Mapping[Speed, int] | None = None

    async def advance(self) -> None:
        """Bind queued transactions to nonces, and advance each in order of nonce, as far as it can."""
        counts = await self._chain.counts(self._signer.name, self._settings.confirmations)
        view = await self._look(counts)
        inquiry = Inquiry(self._chain, self._signer.name, counts, self._settings.confirmations)
        await self._write(lambda lease: nonce_calls.floor(self._signer, lease, counts.final, counts.latest))
        await self._write(lambda lease: nonce_calls.recycle(self._signer, lease))
        expired = await self._write(
            lambda lease: tx_calls.expire(self._signer, lease, self._settings.batch_max)
        )
        self._metrics.transactions.labels(state="CANCELLED").inc(expired)
        taken = await self._write(
            lambda lease: tx_calls.take(
                self._signer,
                lease,
                self._settings.open_max,
                self._settings.open_max,
                self._settings.hold_seconds,
            )
        )
        crash_point("nonces.after_take")
        if not taken:
            await self._fill_gaps()
        for tx in await self._fp.run(tx_calls.open_of(self._signer, self._settings.open_max)):
            try:
                going = await self._move(tx, view, inquiry)
            except FencepostError as error:
                if not isinstance(error, Refusal) or error.noun == "lease":
                    raise
                # Another owner has advanced it: the next turn reads how far.
                _log.info("transaction_moved_on", transaction_id=tx.transaction_id, reason=error.reason)
                continue
            if not going:
                break

    async def _look(self, counts: Counts) -> ChainView:
        pooled = await self._chain.pooled_count(self._signer.name)
        return ChainView(counts.head, counts.latest, counts.final, pooled_count=pooled)

    async def _move(self, tx: Open, view: ChainView, inquiry: Inquiry) -> bool:
        """One step, or several that need no read of the chain between them. False: later ones must wait."""
        step = before_sending(tx)
        if step is None:
            view = await self._view_of(tx, view, inquiry)
            step = after_sending(tx, view, self._patience)
        match step:
            case NextStep.GIVE_UP:
                await self._give_up(tx)
            case NextStep.SIGN:
                return await self._sign_and_send(tx)
            case NextStep.SEND | NextStep.SEND_AGAIN:
                return await self._send(tx, tx.raw or b"")
            case NextStep.CANCEL | NextStep.REPLACE:
                cancelling = step is NextStep.CANCEL or tx.purpose == "cancel"
                if not await self._replace(tx, cancelling=cancelling) and tx.status == "SIGNED":
                    # The cap leaves no room for a no-op. Its own bytes use the nonce, and nothing else can.
                    return await self._send(tx, tx.raw or b"")
            case NextStep.RECORD_BLOCK | NextStep.CONFIRM:
                assert view.receipt is not None
                await self._in_a_block(tx, view.receipt, confirmed=step is NextStep.CONFIRM)
            case NextStep.TAKE_BLOCK_BACK:
                await self._write(lambda lease: tx_calls.mined(self._signer, lease, tx, None, None, None))
                _log.warning("block_taken_back", transaction_id=tx.transaction_id, nonce=tx.nonce)
                return await self._send(tx, tx.raw or b"")
            case NextStep.PROVE:
                await self._prove(tx, await inquiry.who_used(tx))
            case NextStep.WAIT:
                pass
        return True

    async def _give_up(self, tx: Open) -> None:
        """REJECTED, if a foreign transaction used the nonce of one that no block would ever have accepted."""
        state: Literal["REJECTED", "CANCELLED"] = "REJECTED" if tx.rejected else "CANCELLED"
        await self._write(
            lambda lease: tx_calls.reject(self._signer, lease, tx, state, "cancelled before it was signed")
        )
        self._metrics.transactions.labels(state=state).inc()

    async def _view_of(self, tx: Open, view: ChainView, inquiry: Inquiry) -> ChainView:
        """The receipt of whichever version was mined; and whether the newest one is still in the pool."""
        if tx.state == "MINED" and tx.block_number is not None:
            # While its block is unchanged and not deep enough, its receipt has nothing new.
            in_place = await inquiry.block_hash(tx.block_number)
            is_deep = view.head - tx.block_number >= self._patience.confirmations
            view = replace(view, block_hash=in_place)
            if in_place in (None, tx.block_hash) and not is_deep:
                return view
        receipt = await _receipt_of(self._chain, tx) if view.may_be_mined(tx) else None
        if receipt is not None:
            block_hash = await inquiry.block_hash(int(receipt["blockNumber"], 16))
            return replace(view, receipt=receipt, block_hash=block_hash)
        if tx.state == "MINED" or view.latest_count > tx.nonce:
            return view
        # One count covers all that are next in the pool; the others are read by hash.
        known = view.pooled_count > tx.nonce >= view.latest_count
        return replace(view, in_pool=known or await self._chain.is_in_pool(tx.hashes[0]))

    async def _prove(self, tx: Open, finding: Finding) -> None:
        """Take another nonce only when the transaction that used this one was seen, and was not signed here.

        With less proof a mined transaction would look lost, take another nonce and be mined twice. Without
        proof a transaction keeps its nonce, is checked again every turn, and is shown as needing attention.
        """
        facts = {"signer": self._signer.resource, "nonce": tx.nonce, "why": finding.why}
        if finding.use is Use.OURS:
            _log.info("receipt_is_late", tx_hash=finding.tx_hash, **facts)
        elif finding.use is Use.STRANGER and not tx.in_doubt:
            used_by, block = finding.tx_hash, finding.block
            assert used_by is not None
            assert block is not None
            await self._write(
                lambda lease: tx_calls.lost(self._signer, lease, tx, used_by, block.number, block.block_hash)
            )
            _log.error("nonce_used_by_a_stranger", used_by=used_by, **facts)
        else:
            # In doubt: a version from the time that a backup has lost may have used it. An operator decides.
            _log.warning("nonce_in_doubt", **facts)
            why = UNPROVED + finding.why + "."
            if not tx.unproved or (finding.use is Use.UNPROVED and why != tx.error):
                await self._write(lambda lease: tx_calls.unproved(self._signer, lease, tx, why))

    async def _sign_and_send(self, tx: Open) -> bool:
        offered = tx.fees
        if tx.status == "HELD" or offered is None:
            offered = await self._suggested(tx)
            if offered is None:
                # A cap of its own holds up the later ones too: their nonces come after its nonce.
                await self._note(tx, self._fee_cap_text(tx))
                return False
            chosen = offered
            await self._write(lambda lease: tx_calls.signing(self._signer, lease, tx, chosen))
        crash_point("nonces.after_signing")
        raw = await self._store(tx, tx.order, offered, purpose="send")
        crash_point("nonces.after_signed")
        # One that is to be cancelled was stored to be recognised, and a no-op is sent in its place.
        return True if tx.cancelling else await self._send(tx, raw)

    async def _store(self, tx: Open, order: TransactionRequest, offered: Fees, *, purpose: str) -> bytes:
        """Sign, and store the bytes under the fence before they are sent anywhere."""
        signed = await self._keys.sign(self._signer.name, _fields(self._signer, tx.nonce, order, offered))
        crash_point("nonces.before_signed")
        await self._write(
            lambda lease: tx_calls.signed(
                self._signer, lease, tx, signed.tx_hash, signed.raw, purpose=purpose
            )
        )
        return signed.raw

    async def _send(self, tx: Open, raw: bytes) -> bool:
        meaning = await self._chain.send(raw)
        crash_point("nonces.after_send")
        await self._note(tx, told(meaning), final=meaning is Meaning.INVALID)
        if meaning in _STOPPING:
            _log.warning("send_refused", signer=self._signer.resource, nonce=tx.nonce, meaning=str(meaning))
            return False
        if tx.status != "BROADCAST":
            # Also when its nonce is used: the receipts will show by which transaction.
            await self._write(lambda lease: tx_calls.broadcast(self._signer, lease, tx))
            crash_point("nonces.after_broadcast")
        return True

    async def _note(self, tx: Open, why: str | None, *, final: bool = False) -> None:
        """Record what blocks the transaction; written only when it changes."""
        if final and not tx.cancelling:
            _log.error("transaction_invalid", transaction_id=tx.transaction_id, nonce=tx.nonce)
            await self._write(lambda lease: tx_calls.reject(self._signer, lease, tx, "REJECTED", str(why)))
        elif why != tx.error and not tx.rejected:
            await self._write(lambda lease: tx_calls.note(self._signer, lease, tx, why))

    async def _replace(self, tx: Open, *, cancelling: bool) -> bool:
        """Send a new version at a higher fee. Each is stored; whichever is mined, the nonce is used once.
        False when the cap forbids it.
        """
        cap, market = self._cap_of(tx, cancelling=cancelling), await self._asked(tx.speed)
        offered = fee_rules.raised(fees_of(tx.raw or b""), market, cap)
        if offered is None:
            _log.warning("fee_cap_reached", transaction_id=tx.transaction_id, nonce=tx.nonce)
            await self._note(tx, self._fee_cap_text(tx))
            return False
        order = await self._no_op() if cancelling else tx.order
        raw = await self._store(tx, order, offered, purpose="cancel" if cancelling else "send")
        _log.info(
            "transaction_replaced",
            transaction_id=tx.transaction_id,
            nonce=tx.nonce,
            version=len(tx.hashes) + 1,
        )
        await self._send(tx, raw)
        return True

    async def _no_op(self) -> TransactionRequest:
        """A payment of nothing to the signer itself, which uses a nonce.

        Its gas is estimated: some chains ask for more than 21,000, and the signer's account may have code.
        When the simulation fails, the least gas is offered: also a transaction that fails uses its nonce.
        So it is for a node that does not simulate; what is too little is estimated again when it is stuck.
        """
        order = TransactionRequest(self._signer.name, 0, b"", None)
        settings = self._settings
        try:
            gas = await estimated(
                self._chain,
                self._signer.name,
                order,
                margin_percent=settings.gas_margin_percent,
                gas_max=settings.gas_max,
            )
        except (InvalidInput, ContradictingAnswers) as error:
            _log.warning("no_op_not_estimated", signer=self._signer.resource, error=str(error))
            gas = GAS_MIN
        return replace(order, gas=gas)

    def _cap_of(self, tx: Open, *, cancelling: bool) -> int:
        """The most that a version may offer for a unit of gas. A transaction with a deadline leaves room for
        the no-op that may have to replace it: that has to offer more, and stays below the cap too."""
        cap = self._cap if tx.fee_cap is None else min(self._cap, tx.fee_cap)
        return fee_rules.room_for_a_no_op(cap) if tx.has_deadline and not cancelling else cap

    def _fee_cap_text(self, tx: Open) -> str:
        return OWN_FEE_CAP if tx.fee_cap is not None and tx.fee_cap < self._cap else FEE_CAP

    async def _in_a_block(self, tx: Open, receipt: Receipt, *, confirmed: bool) -> None:
        tx_hash, block = str(receipt["transactionHash"]), str(receipt["blockHash"]).lower()
        number = int(receipt["blockNumber"], 16)
        if not confirmed:
            await self._write(lambda lease: tx_calls.mined(self._signer, lease, tx, tx_hash, number, block))
            return
        kept = {
            "status": int(receipt.get("status") or "0x1", 16),
            "block_number": number,
            "block_hash": block,
            "gas_used": int(receipt.get("gasUsed") or "0x0", 16),
        }
        state = await self._write(lambda lease: tx_calls.confirm(self._signer, lease, tx, tx_hash, kept))
        self._metrics.transactions.labels(state=state).inc()
        crash_point("nonces.after_confirm")

    async def _fill_gaps(self) -> None:
        """A gap below sent nonces blocks all above it. With no transaction queued to use it, a no-op does."""
        gaps = await self._fp.run(queries.jamming_gaps(self._signer))
        if not gaps:
            return
        no_op = await self._no_op()
        assert no_op.gas is not None
        for nonce, hold in gaps:
            await self._fp.run(tx_calls.fill(self._signer, nonce, hold, replace(no_op, gas=None), no_op.gas))

    async def _suggested(self, tx: Open) -> Fees | None:
        cap = self._cap_of(tx, cancelling=False)
        offered = fee_rules.suggested(await self._asked(tx.speed), cap)
        if offered is None:
            _log.warning("fee_cap_reached", signer=self._signer.resource, cap_gwei=cap / GWEI)
        return offered

    async def _asked(self, speed: Speed) -> Market:
        """The fees that the chain requires for this speed, read once a turn."""
        if self._market is None:
            self._market = await self._chain.market()
        if speed == "standard":
            return self._market
        if self._paid_tips is None:
            self._paid_tips = await self._chain.paid_tips()
        return fee_rules.at_speed(self._market, speed, self._paid_tips)

    async def _write(self, call: Callable[[Lease], Call[T]]) -> T:
        """Fenced, and only while this node can hold the signer: no other node is asked to hand it over."""
        return await self._node.write(self._signer, call, patient=False, away=self._away)


async def _receipt_of(chain: Chain, tx: Open) -> Receipt | None:
    """The receipt of whichever version was mined."""
    for tx_hash in tx.hashes:
        receipt = await chain.receipt(tx_hash)
        if receipt is not None:
            return receipt
    return None


def _fields(signer: Signer, nonce: int, order: TransactionRequest, offered: Fees) -> dict[str, object]:
    fields: dict[str, object] = {
        "chainId": signer.chain_id,
        "nonce": nonce,
        "gas": order.gas,
        "value": order.value,
        "data": "0x" + order.data.hex(),
        **_priced(offered),
    }
    if order.to is not None:
        # Checksummed, as the signing library requires.
        fields["to"] = checksummed(order.to)
    return fields


def _priced(offered: Fees) -> dict[str, object]:
    if offered.max_priority is None:
        return {"gasPrice": offered.max_fee}
    return {"type": 2, "maxFeePerGas": offered.max_fee, "maxPriorityFeePerGas": offered.max_priority}
