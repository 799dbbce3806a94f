"""The floors of the API's benchmarks, as programs: `python -m benchmarks.api_floors bare|constant PORT BODY ENCODING`.

`bare` is an ASGI application that sends the same bytes to every request; `constant` a route of FastAPI that returns them. Both
run on uvicorn as everybody starts it, with its h11 protocol, which is ours too, and without its access log.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Response


def bare(body: bytes, encoding: str) -> Any:
    """An ASGI application that reads nothing and sends `body`."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if encoding != "identity":
        headers.append((b"content-encoding", encoding.encode()))

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - the shape of ASGI
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def constant(body: bytes, encoding: str) -> Any:
    """A FastAPI route that returns `body` to every POST."""
    app = FastAPI()
    headers = {} if encoding == "identity" else {"Content-Encoding": encoding}

    @app.post("/preanalytics")
    async def preanalytics() -> Response:
        return Response(body, media_type="application/json", headers=headers)

    return app


def main() -> None:
    """Serve one of the two until SIGTERM."""
    kind, port, body, encoding = sys.argv[1:]
    app = {"bare": bare, "constant": constant}[kind](Path(body).read_bytes(), encoding)
    uvicorn.run(app, host="127.0.0.1", port=int(port), http="h11", ws="none", lifespan="off", access_log=False, log_level="error")


if __name__ == "__main__":
    main()
