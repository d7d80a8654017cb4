package device

import (
	"fmt"
	"maps"
	"slices"
)

// Capacity is an amount of something that the claims of a device share, such as bandwidth.
// Quantities are written as the API server writes them.
type Capacity struct {
	Value  string
	Policy *CapacityPolicy
}

// CapacityPolicy defines which amounts claims get. Either Min or Values may be set, and with both
// of them, Default.
type CapacityPolicy struct {
	// Default is the amount of a claim that requests none. If it is empty, that is everything.
	Default string
	// Min is the smallest amount, Max the largest. Other amounts are Min and a multiple of Step.
	Min, Max, Step string
	// Values are all amounts, in ascending order.
	Values []string
}

// MaxCapacityValues is the maximum number of values of a policy
// (CapacityRequestPolicyDiscreteMaxOptions in k8s.io/api/resource/v1).
const MaxCapacityValues = 10

// quantities are the parsed quantities of a capacity. Only the set ones are valid.
type quantities map[string]Quantity

// NewCapacity returns the capacity with a value and a policy, which may be nil. It checks
// everything that the API server checks: an invalid capacity would make it refuse the slice with
// all its devices (validateRequestPolicy in pkg/apis/resource/validation of Kubernetes). field is
// the key that is invalid.
func NewCapacity(value string, policy *CapacityPolicy) (c Capacity, field string, err error) {
	all := quantities{}
	c.Value, err = all.parse("value", value)
	if err != nil {
		return c, "value", err
	}
	if policy == nil {
		return c, "", nil
	}
	p := *policy
	fields := map[string]*string{"default": &p.Default, "min": &p.Min, "max": &p.Max, "step": &p.Step}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		into := fields[name]
		if *into == "" {
			continue
		}
		*into, err = all.parse(name, *into)
		if err != nil {
			return c, name, err
		}
	}
	c.Policy = &p
	if len(policy.Values) > 0 {
		err = all.checkValues(&p)
		return c, "values", err
	}
	field, err = all.checkRange()
	return c, field, err
}

// parse parses an integer quantity and returns how the API server writes it.
func (all quantities) parse(name, text string) (canonical string, err error) {
	q, err := ParseQuantity(text)
	if err != nil {
		return "", fmt.Errorf("%q %w", text, err)
	}
	if !q.IsInt64() {
		return "", fmt.Errorf("%q is not an integer of 64 bits", text)
	}
	all[name] = q
	return q.String(), nil
}

// checkValues checks the amounts of a policy, and makes them canonical.
func (all quantities) checkValues(p *CapacityPolicy) error {
	hasDefault := false
	canonical := make([]string, 0, len(p.Values))
	for i, text := range p.Values {
		written, err := all.parse("values", text)
		if err != nil {
			return err
		}
		q := all["values"]
		if i > 0 && q.Cmp(all["last"]) <= 0 {
			return fmt.Errorf("%s follows %s: want ascending values", written, canonical[i-1])
		}
		if q.Cmp(all["value"]) > 0 {
			return fmt.Errorf("%s is more than the capacity of %s", written, all["value"])
		}
		hasDefault = hasDefault || q.Cmp(all["default"]) == 0
		all["last"] = q
		canonical = append(canonical, written)
	}
	if !hasDefault {
		return fmt.Errorf("the default %s is missing", all["default"])
	}
	p.Values = canonical
	return nil
}

// checkRange checks the amounts of a policy without values.
func (all quantities) checkRange() (field string, err error) {
	order := []string{"min", "default", "max", "value"}
	last := ""
	for _, name := range order {
		if _, isSet := all[name]; !isSet {
			continue
		}
		if last != "" && all[last].Cmp(all[name]) > 0 {
			return last, fmt.Errorf("%s is more than %s: %s", all[last], name, all[name])
		}
		last = name
	}
	step, hasStep := all["step"]
	if !hasStep {
		return "", nil
	}
	if step.Int64() == 0 {
		return "step", fmt.Errorf("must be greater than 0")
	}
	first := all["min"]
	if first.Plus(step).Cmp(all["value"]) > 0 {
		return "step", fmt.Errorf("min and one step are more than the capacity of %s", all["value"])
	}
	for _, name := range []string{"default", "max"} {
		q, isSet := all[name]
		if isSet && (q.Int64()-first.Int64())%step.Int64() != 0 {
			return name, fmt.Errorf("%s is not min %s and a multiple of step %s", q, first, step)
		}
	}
	return "", nil
}
