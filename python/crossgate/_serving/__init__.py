"""The server: the endpoints of other rerankers, over HTTP, with crossgate behind them."""
