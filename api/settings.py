"""What an API replica is told."""

from dataclasses import dataclass

from infinity_pool.broker.settings import CommonSettings, option


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """The HTTP side of an API replica."""

    host: str = option("Address to listen on.", default="127.0.0.1")
    port: int = option("Port to listen on; 0: any free one.", default=7997, minimum=0, maximum=65535)
    tcp: bool = option("Listen on the port; without it on the Unix socket alone.", default=True)
    uds: str = option("Unix socket to listen on too, without TLS.", default="")
    uds_mode: str = option("Who may open that socket, as a file's mode.", default="660")
    admin_port: int = option(
        "Port for /metrics, /ready, the page and /docs, which are then nowhere else; /health is on both. 0: none.",
        default=0,
        minimum=0,
        maximum=65535,
        scope="api",
    )
    admin_host: str = option("Address of that port; default: that of the other.", default="", scope="api")
    tls_cert: str = option("Certificate chain in PEM, for TLS on all ports; taken anew when it changes.", default="")
    tls_key: str = option(
        "Its key, if that is in another file; a password is taken from INFINITY_TLS_KEY_PASSWORD.", default=""
    )
    cors_origin: tuple[str, ...] = option(
        "Site whose pages may ask here, as https://app.example, or * for any; may be repeated.", default=()
    )
    trusted_proxy: tuple[str, ...] = option(
        "Address or CIDR of a proxy whose X-Forwarded-* and Forwarded are believed, or unix: whoever comes by the "
        "Unix socket; may be repeated.",
        default=(),
    )
    proxy_root_path: str = option("Path that a proxy takes off before requests come here.", default="")
    api_key: str = option("Ask callers for this key, as a Bearer token.", default="", secret=True)
    api_key_file: str = option("File of keys, reread when it changes: JSON objects, one a line, or TOML.", default="")
    require_key: bool = option("Refuse who sends no key, also while none is known.", default=False)
    timeout: float = option(
        "Seconds an online request may take in all, unless its X-Request-Timeout says otherwise.",
        default=60.0,
        minimum=0.001,
    )
    max_timeout: float = option(
        "Most seconds that X-Request-Timeout may ask for, and what a bulk request may take.",
        default=600.0,
        minimum=0.001,
    )
    read_timeout: float = option(
        "Seconds in which the head of a request must come, and in which some of its body must.",
        default=30.0,
        minimum=0.001,
    )
    keep_alive: float = option("Seconds that a connection stays open between requests.", default=630.0, minimum=0.001)
    strict_model_names: bool = option("Refuse a name that is not served, also where only one model is.", default=False)
    url_prefix: str = option("Serve all paths below this one too, as /v1 is.", default="")
    online_max_items: int = option("Requests of up to so many items go online, larger ones bulk.", default=8, minimum=0)
    max_items: int = option("Items in one request.", default=2048, minimum=1)
    max_body: int = option("Bytes in one request's body.", default=64 * 2**20, minimum=1)
    max_queue_items: int = option(
        "Items that may wait in one lane of a model; what comes then gets 429.", default=32_000, minimum=1
    )
    max_queue_tokens: int = option(
        "Tokens, as estimated, that may wait in one lane of a model; 0: 60 s of work, as measured.",
        default=0,
        minimum=0,
    )
    metrics_by_key: bool = option("Tell in /metrics what each key had run, by the key's name.", default=True)
    require_model: tuple[str, ...] = option(
        "A model without which /ready says no, may be repeated; default: any one will do.", default=()
    )
    media_urls: bool = option("Fetch images and sounds from http and https URLs in requests.", default=True)
    media_allow: tuple[str, ...] = option(
        "Who may be asked for files beside public hosts: a host, *.suffix, address or CIDR; may be repeated.",
        default=(),
    )
    media_timeout: float = option("Seconds that fetching one file may take.", default=10.0, minimum=0.001)
    files: str = option(
        "Folder, or URL that fsspec knows, of the files of /v1/files and /v1/batches; without it there are none.",
        default="",
    )
    files_days: float = option("Days that files and batches are kept.", default=30.0, minimum=0.001)
    max_file: int = option("Bytes in one file that is uploaded.", default=200 * 2**20, minimum=1)
    max_batch_requests: int = option("Requests in one batch.", default=50_000, minimum=1)
    batches_at_once: int = option("Batches that one replica works on at once.", default=4, minimum=1)
    shutdown_delay: float = option(
        "Seconds after SIGTERM in which /ready says no and requests are still taken.", default=0.0, minimum=0
    )


@dataclass(frozen=True, kw_only=True)
class ApiSettings(HttpSettings, CommonSettings):
    """What one API process is told."""

    reuse_port: bool = option("Share the port with other replicas on this host.", default=False)
