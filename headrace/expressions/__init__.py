"""Typed expression trees and their compilation to Arrow kernels."""
