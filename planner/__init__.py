"""The computation: model facts, card facts, memory budget. Knows no network, no GPU library, no drawing."""
