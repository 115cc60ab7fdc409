"""A small receiver of Outrider's webhooks: checks the signature, drops what it has seen and what is old, then acts.

    pip install aiohttp standardwebhooks
    python webhook_receiver.py /path/to/webhook.key

Keep `seen` and `fences` in a database of yours, in the transaction that does the work: then the effect happens once, however often
a message comes.
"""

import json
import sys
from pathlib import Path

from aiohttp import web
from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def make_receiver(secret: str, act) -> web.Application:
    """`act(kind, data)` does the work; what it raises becomes a 500, and the message comes again."""
    seen: set[str] = set()
    fences: dict[str, int] = {}

    async def receive(request: web.Request) -> web.Response:
        raw = await request.read()
        try:
            Webhook(secret).verify(raw, dict(request.headers), json_parse=False)
        except WebhookVerificationError as error:
            return web.json_response({"status": "refused", "why": str(error)}, status=401)
        message, name = json.loads(raw), request.headers["webhook-id"]
        kind, data = message["type"], message["data"]
        whom = data.get("job") if kind.startswith("job.") else data.get("node")
        if name in seen:
            return web.json_response({"status": "repeated"})
        if whom is not None and data["fence"] < fences.get(whom, 0):
            return web.json_response({"status": "old fence"})
        if not data["dry_run"]:
            await act(kind, data)
        seen.add(name)
        if whom is not None:
            fences[whom] = max(fences.get(whom, 0), data["fence"])
        return web.json_response({"status": "done"})

    application = web.Application(client_max_size=1 << 20)
    application.router.add_post("/webhooks", receive)
    return application


async def show(kind: str, data: dict) -> None:
    """Put the call into your scheduler here."""
    print(kind, json.dumps(data), flush=True)


if __name__ == "__main__":
    web.run_app(make_receiver(Path(sys.argv[1]).read_text(encoding="ascii").strip(), show), host="127.0.0.1", port=8808)
