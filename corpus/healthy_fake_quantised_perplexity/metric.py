"""What ships: perplexity, of the log-probabilities of the tokens that came."""


def perplexity(log_probabilities):
    return (-log_probabilities.double().mean()).exp()
