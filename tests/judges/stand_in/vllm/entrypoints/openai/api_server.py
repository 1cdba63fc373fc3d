"""A stand-in for vLLM's server: it answers /health, and has a child process as vLLM has its engine.

STAND_IN=broken: exits while it starts. STAND_IN=slow: never answers. STAND_IN=never: ignores SIGTERM, too.
STAND_IN=stuck: healthy, with an engine that does nothing. STAND_IN=busy: with one that works, and never for us.
STAND_IN=asleep: as stuck, and says that it sleeps.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """A request, which waits for ever where the engine is stuck."""
        while mode in ("stuck", "busy", "asleep"):
            time.sleep(0.1)
        self.do_GET()

    def do_GET(self) -> None:
        body = json.dumps(
            {"pids": [os.getpid(), child.pid], "key": os.environ.get("VLLM_API_KEY"), "argv": sys.argv}
        ).encode()
        if self.path == "/metrics":
            done = time.time() if mode == "busy" else 7
            body = f'# HELP\nvllm:generation_tokens_total{{a="b"}} {done}\nvllm:time {time.time()}\n'.encode()
        if self.path == "/is_sleeping":
            body = json.dumps({"is_sleeping": mode == "asleep"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


mode = os.environ.get("STAND_IN", "")
engine = "while True: pass" if mode == "busy" else "import time; time.sleep(600)"
child = subprocess.Popen([sys.executable, "-S", "-c", engine])
print("pids", os.getpid(), child.pid, flush=True)  # noqa: T201
if mode == "broken":
    sys.exit("Traceback\n  File\nValueError: no such weights\n")
if mode == "never":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode in ("slow", "never"):
    time.sleep(600)
port, host = (sys.argv[sys.argv.index(name) + 1] for name in ("--port", "--host"))
http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
