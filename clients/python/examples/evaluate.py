"""Run short coding tasks in sandboxes, several at a time: python examples/evaluate.py IMAGE [TASKS [AT_ONCE]].

Each task has a sandbox of its own on the Docker engine of this machine: it writes a program with a mistake, runs its
test, which fails, corrects the program, and runs the test again. It prints trials an hour, and failures by kind.
The image needs a shell alone.
"""

import asyncio
import collections
import sys
import time
from typing import Counter, List

import actiond

PROGRAM = "#!/bin/sh\n# Adds two numbers.\necho $(($1 - $2))\n"
TEST = '#!/bin/sh\n[ "$(./add.sh {n} 4)" = {sum} ] && echo passed || { echo "failed: $(./add.sh {n} 4)"; exit 1; }\n'


async def trial(client: actiond.AsyncClient, n: int) -> str:
    """Return how a task ended, in a word."""
    async with await client.create(key=f"trial-{n}-{time.time_ns()}", labels={"trial": str(n)}, ttl_seconds=900) as sandbox:
        await sandbox.write("add.sh", PROGRAM, mode=0o755)
        await sandbox.write("test.sh", TEST.replace("{n}", str(n)).replace("{sum}", str(n + 4)), mode=0o755)
        before = await sandbox.run("./test.sh")
        if before.exit_code != 1:
            return "the test did not fail at first"
        await sandbox.edit((await sandbox.run("pwd")).output.strip() + "/add.sh", "$1 - $2", "$1 + $2")
        after = await sandbox.exec(["./test.sh"], timeout=60)
        return "solved" if after.ok and after.stdout == "passed\n" else "the test failed at last"


async def main(image: str, tasks: int, at_once: int) -> None:
    ended: Counter[str] = collections.Counter()
    seconds: List[float] = []
    places = asyncio.Semaphore(at_once)

    async def one(client: actiond.AsyncClient, n: int) -> None:
        async with places:
            begun = time.monotonic()
            try:
                ended[await trial(client, n)] += 1
            except actiond.ActiondError as e:
                ended[type(e).__name__] += 1
                print(f"trial {n}: {e!r}", file=sys.stderr)
            seconds.append(time.monotonic() - begun)

    async with await actiond.async_docker("--pull", "never", image) as client:
        begun = time.monotonic()
        await asyncio.gather(*(one(client, n) for n in range(tasks)))
        took = time.monotonic() - begun
    print(f"{tasks} trials, {at_once} at once, in {took:.0f} s: {tasks / took * 3600:.0f} an hour; "
          f"median {sorted(seconds)[len(seconds) // 2]:.1f} s")
    for how, count in ended.most_common():
        print(f"  {count} × {how}")


if __name__ == "__main__":
    arguments = sys.argv[1:] + ["100", "20"][max(0, len(sys.argv) - 2):]
    asyncio.run(main(arguments[0], int(arguments[1]), int(arguments[2])))
