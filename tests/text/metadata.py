"""GGUF metadata of tokenizers small enough to see through."""

from __future__ import annotations

from linnet.text.spelling import byte_level_alphabet

SPACE = byte_level_alphabet()[32]


def bpe_metadata(pre: str = "gpt-2", /, **more: object) -> dict[str, object]:
    """Byte-level BPE: a token for each byte, by its number, and eight merges; two special ones."""
    merges = ["h e", "l l", "l o", "he ll", "hell o", "l lo", f"{SPACE} w", "1 2"]
    tokens = [*byte_level_alphabet(), *(m.replace(" ", "") for m in merges), "<|end|>", "<tool>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 2) + [3, 4],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": len(tokens) - 2,
        **more,
    }


def spm_metadata(**more: object) -> dict[str, object]:
    """SentencePiece style: three steering tokens, the 256 bytes, twelve words, best first."""
    pieces = [("<unk>", 2, 0.0), ("<s>", 3, 0.0), ("</s>", 3, 0.0)]
    pieces += [(f"<0x{byte:02X}>", 6, 0.0) for byte in range(256)]
    words = ["▁a", "an", "▁an", "▁ban", "ana", "▁banana", "▁", "a", "n", "b", "▁b", "na"]
    pieces += [(word, 1, -float(i)) for i, word in enumerate(words)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [p[0] for p in pieces],
        "tokenizer.ggml.token_type": [p[1] for p in pieces],
        "tokenizer.ggml.scores": [p[2] for p in pieces],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **more,
    }
