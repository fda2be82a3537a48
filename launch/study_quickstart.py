"""The quick start of the study's released model, word for word, on a model exported by jaxlm.

`python launch/study_quickstart.py runs/quickstart/hf_diffusion`: one prompt, then four of different length in a batch.
Needs torch and transformers, and nothing of jaxlm: it is what someone does who is handed the directory.
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = (
    "Returns the sum of",
    "If True, the",
    "An array of shape",
    "Computes the gradient of a function with respect to",
)
SETTINGS = {"max_new_tokens": 50, "temperature": 0.1, "top_p": 0.5, "top_k": 5, "repetition_penalty": 1.8}


def main(directory: str) -> None:
    """Prints what the model of `directory` writes."""
    # The tokenizer has no code of its own, but transformers looks at the model's configuration first, which has.
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True)
    torch.manual_seed(0)

    one = tokenizer(PROMPTS[0], return_tensors="pt")
    ids = model.generate(one["input_ids"], **SETTINGS, do_sample=True, pad_token_id=0)
    print(f"one prompt\n{tokenizer.decode(ids[0], skip_special_tokens=True)}")

    four = tokenizer(list(PROMPTS), return_tensors="pt", padding=True)
    ids = model.generate(
        four["input_ids"], attention_mask=four["attention_mask"], **SETTINGS, do_sample=True, pad_token_id=0
    )
    for prompt, text in zip(PROMPTS, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True):
        print(f"\nin a batch of four: {prompt!r}\n{text}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python launch/study_quickstart.py DIR (a directory made by jaxlm.export)")
    main(sys.argv[1])
