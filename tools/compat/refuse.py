"""A store that lists no buckets and refuses every other request, to find the tests that such a store passes."""
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import threading

EMPTY = (b'<?xml version="1.0"?><ListAllMyBucketsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Owner><ID>0</ID>'
         b"<DisplayName>none</DisplayName></Owner><Buckets/></ListAllMyBucketsResult>")
REFUSAL = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message><RequestId>0</RequestId></Error>'


class Refuser(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def skip_body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
                self.rfile.read(size + 2)
            while self.rfile.readline().strip():
                pass
        else:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self):
        self.skip_body()
        lists = self.command == "GET" and self.path.split("?")[0] == "/" and "Authorization" in self.headers
        body = EMPTY if lists else REFUSAL
        self.send_response(200 if lists else 403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", "0" if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = answer

    def log_message(self, *_):
        pass


class Refusing(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """A client that leaves early is not an error."""


def start():
    """Returns the server; its port is `server_port`."""
    server = Refusing(("127.0.0.1", 0), Refuser)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
