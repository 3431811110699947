"""A purchase and the letter that confirms it: both, or neither; and letters of one customer in order.

python examples/outbox_relay.py ann 5 ben 7
"""

import asyncio
import sys

from fencepost import Fencepost
from fencepost.kernel import outbox
from fencepost.kernel.outbox import Message, Settlement


async def purchase(fp: Fencepost, customer: str, euros: int) -> None:
    async with fp.transaction() as tx:
        await tx.execute("insert into purchase (customer, euros) values (%s, %s)", (customer, euros))
        # Written with the purchase, sent after it is committed. The key keeps a customer's letters in order.
        await fp.outbox.put(tx, "letters", {"to": customer, "euros": euros}, key=customer)


async def relay_once(fp: Fencepost) -> int:
    """Send what is due; answers how much. A crash before the commit sends it again: at least once."""
    async with fp.transaction() as tx:
        letters = await tx.run(outbox.hold("letters", limit=100))
        await tx.run(outbox.settle_many([await send(letter) for letter in letters], owner=None))
        return len(letters)


async def send(letter: Message) -> Settlement:
    try:
        await post(letter)
    except OSError as error:
        # Due again in a minute; what is behind it for this customer waits.
        return Settlement(letter.id, letter.take, "failed", error=str(error), delay_seconds=60)
    return Settlement(letter.id, letter.take, "sent")


async def post(letter: Message) -> None:
    # The id goes along, so that the receiver can drop the rare second copy.
    print(f"letter {letter.id} to {letter.payload['to']}: {letter.payload['euros']} euros")


async def main(words: list[str]) -> None:
    async with Fencepost.from_env() as fp:
        for customer, euros in zip(words[::2], words[1::2], strict=True):
            await purchase(fp, customer, int(euros))
        while await relay_once(fp):
            pass


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
