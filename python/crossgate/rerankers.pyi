"""The public names of `crossgate.rerankers`, and the module that each one comes from."""

from crossgate._reranking.contract import AsyncReranker as AsyncReranker
from crossgate._reranking.contract import Deadline as Deadline
from crossgate._reranking.contract import PairScore as PairScore
from crossgate._reranking.contract import Reranker as Reranker
from crossgate._reranking.contract import Scores as Scores
from crossgate._reranking.contract import passages_of as passages_of
from crossgate._reranking.cross_encoder import CrossEncoder as CrossEncoder
from crossgate._reranking.generative import DecisionReranker as DecisionReranker
from crossgate._reranking.generative import LLMReranker as LLMReranker
from crossgate._reranking.guard import GuardedReranker as GuardedReranker
from crossgate._reranking.http import TransportError as TransportError
from crossgate._reranking.lexical import SemanticBM25 as SemanticBM25
from crossgate._reranking.remote import CohereReranker as CohereReranker
from crossgate._reranking.remote import JinaReranker as JinaReranker
from crossgate._reranking.remote import RemoteReranker as RemoteReranker
from crossgate._reranking.remote import Transport as Transport
from crossgate._reranking.remote import VoyageReranker as VoyageReranker
from crossgate._reranking.shared_state import CircuitBreaker as CircuitBreaker
from crossgate._reranking.shared_state import LatencyEstimate as LatencyEstimate
from crossgate._reranking.shared_state import State as State
from crossgate._reranking.shared_state import shut_down as shut_down
from crossgate._values.results import Passage as Passage

__all__: list[str]
