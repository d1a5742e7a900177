"""Amounts in minor units, formatted for people."""

_DIGITS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_DIGITS_OF = {currency: digits for digits, codes in _DIGITS.items() for currency in codes.split()}
DIGITS_USUAL = 2


def money(amount_minor: int, currency: str) -> str:
    """Return an amount in the currency's major unit (decimal digits as in ISO 4217).

    >>> money(-8500000, "USD"), money(8500000, "JPY")
    ('-85,000.00 USD', '8,500,000 JPY')
    """
    digits = _DIGITS_OF.get(currency, DIGITS_USUAL)
    whole, part = divmod(abs(amount_minor), 10**digits)
    sign = "-" if amount_minor < 0 else ""
    fraction = f".{part:0{digits}d}" if digits else ""
    return f"{sign}{whole:,}{fraction} {currency}"
