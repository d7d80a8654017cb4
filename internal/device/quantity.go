package device

import (
	"errors"
	"math/big"
	"slices"
	"strings"
)

// Quantity is an amount of a capacity. It is immutable.
type Quantity struct {
	n *big.Rat
	// binary is set if it was written with a suffix such as "Gi".
	binary bool
}

// maxQuantity is the maximum length of a quantity: the API server writes shorter ones.
const maxQuantity = 40

// Suffixes of quantities, each 1000 or 1024 times the one before (resource.Quantity in
// k8s.io/apimachinery).
var (
	decimalSuffixes = []string{"n", "u", "m", "", "k", "M", "G", "T", "P", "E"}
	binarySuffixes  = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
)

// noSuffix is the index of the empty suffix in decimalSuffixes.
const noSuffix = 3

var errQuantity = errors.New(`is not a quantity: want a number of zero or more with a suffix, such as "4", "10G" or "512Mi"`)

// ParseQuantity parses a quantity of Kubernetes that is not negative. The error continues the
// quoted text.
func ParseQuantity(text string) (Quantity, error) {
	if len(text) > maxQuantity {
		return Quantity{}, errQuantity
	}
	suffix := strings.TrimLeft(text, decimal+".")
	number := strings.TrimSuffix(text, suffix)
	if isExponent(suffix) {
		number = text
		suffix = ""
	}
	n, ok := new(big.Rat).SetString(number)
	if !ok {
		return Quantity{}, errQuantity
	}
	if i := slices.Index(decimalSuffixes, suffix); i >= 0 {
		return Quantity{n: n.Mul(n, power(1000, i-noSuffix))}, nil
	}
	i := slices.Index(binarySuffixes, suffix)
	if i < 0 {
		return Quantity{}, errQuantity
	}
	return Quantity{n: n.Mul(n, power(1024, i)), binary: true}, nil
}

// isExponent reports whether what follows a number is an exponent, "e3" or "E-3". It has no more than two
// digits: the API server writes no larger one, and the number would fill the memory.
func isExponent(suffix string) bool {
	exponent, hasExponent := strings.CutPrefix(strings.ToLower(suffix), "e")
	digits := strings.TrimLeft(exponent, "+-")
	return hasExponent && len(digits) <= 2 && IsDigits(digits)
}

// power returns base to the power of n, which may be negative.
func power(base int64, n int) *big.Rat {
	factor := big.NewRat(base, 1)
	if n < 0 {
		factor.Inv(factor)
		n = -n
	}
	result := big.NewRat(1, 1)
	for range n {
		result.Mul(result, factor)
	}
	return result
}

// Cmp compares two quantities.
func (q Quantity) Cmp(other Quantity) int { return q.n.Cmp(other.n) }

// Plus returns the sum of two quantities.
func (q Quantity) Plus(other Quantity) Quantity {
	return Quantity{n: new(big.Rat).Add(q.n, other.n), binary: q.binary}
}

// IsInt64 reports whether the quantity is an integer of 64 bits.
func (q Quantity) IsInt64() bool { return q.n.IsInt() && q.n.Num().IsInt64() }

// String returns an integer as the API server writes it: with the largest suffix that keeps it an
// integer.
func (q Quantity) String() string {
	suffixes := decimalSuffixes[noSuffix:]
	base := big.NewInt(1000)
	n := new(big.Int).Quo(q.n.Num(), q.n.Denom())
	// Smaller numbers have decimal suffixes (CanonicalizeBytes of resource.Quantity).
	if q.binary && n.CmpAbs(big.NewInt(1024)) >= 0 {
		suffixes = binarySuffixes
		base = big.NewInt(1024)
	}
	i := 0
	for n.Sign() != 0 && i+1 < len(suffixes) {
		quotient, rest := new(big.Int).QuoRem(n, base, new(big.Int))
		if rest.Sign() != 0 {
			break
		}
		n = quotient
		i++
	}
	return n.String() + suffixes[i]
}

// Number returns the quantity as a plain number, "1000000000" or "0.5", for programs.
func (q Quantity) Number() string {
	if q.n.IsInt() {
		return q.n.Num().String()
	}
	const nano = 9 // the precision of resource.Quantity
	return strings.TrimRight(q.n.FloatString(nano), "0")
}
