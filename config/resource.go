package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

const (
	maxCount           = 10000
	minForgetAfter     = time.Minute
	defaultForgetAfter = 10 * time.Minute
	// defaultHealthHold is longer than a probe with the kubelet's own periods takes to fail.
	defaultHealthHold = 40 * time.Second
)

// Hints for a missing match, and for a lone string in place of one.
const (
	matchHint    = `match.glob = "/dev/ttyUSB*" selects nodes by their paths`
	exampleMatch = `{ glob = "/dev/ttyUSB*" }`
)

// readResource reads one [[resource]] and fills in its defaults.
func readResource(v value) Resource {
	r := Resource{
		Place:       v.fullPlace(),
		Count:       1,
		NUMA:        NUMA{Auto: true},
		Identity:    IdentityAuto,
		Register:    RegisterWhenPresent,
		API:         API(cmp.Or(v.r.api.value, string(APIDevicePlugin))),
		EvictAfter:  defaultEvictAfter,
		Prefer:      PreferNUMA,
		ForgetAfter: defaultForgetAfter,
		Container:   Container{Permissions: defaultPermissions, AutoCDI: true},
	}
	v.r.texts = nil
	v.r.matches = nil
	sound := v.read(func(t *table) {
		t.key("name", stringForm, func(v value) {
			v.resourceName(&r)
		},
			"name of the resource, optionally with another domain than the one above")
		t.require("name", `a name such as "gpu" or "vendor.example/gpu"`, "")
		// names comes after name, whose results it maps.
		t.key("names", stringTable, func(v value) {
			v.resourceNames(&r)
		},
			"nicer names: what name results in, without domain, or a pattern of it, and the name to use instead")
		t.integer(
			"count",
			&r.Count,
			1,
			maxCount,
			"number of slots of each device: how many containers may hold it at the same time",
		)
		tables(t, "match", &r.Match, readMatch, exampleMatch,
			"device nodes and hardware: a table, or a list of tables of which any may select a node")
		t.require("match", "at least one match", matchHint)
		tables(t, "exclude", &r.Exclude, readExclude, exampleMatch, "device nodes and hardware to leave out")
		words(t, "each", &r.Each, []Each{EachDevice, EachNode, EachAll},
			`what one device is: "device" is the hardware with all its selected nodes, "node" is each single node, "all" is everything together`)
		t.key("group_by", stringForm, func(v value) {
			r.GroupBy = v.groupVariable()
		},
			"variable, without ${}: hardware with the same value is one device")
		t.boolean(
			"shared",
			&r.Shared,
			"whether other resources may offer the same device: all that select it must set shared",
		)
		t.table("when", func(v value) {
			r.When = readWhen(v)
		}, `{ node_name = "gpu-*" }`, "when the resource is active: all set conditions must hold")
		tables(t, "with", &r.With, readCompanion, `{ path = "/dev/kfd" }`,
			"companions: nodes or paths injected along with every device, once per container")
		words(
			t,
			"prefer",
			&r.Prefer,
			[]Prefer{PreferNUMA, PreferPacked, PreferSpread},
			"which free devices to suggest to the kubelet",
		)
		t.key("numa", numaForm, func(v value) {
			r.NUMA = v.numa()
		},
			`NUMA nodes to report: "auto" is those of the hardware, "none" is none, or a list such as [0, 1]`)
		words(t, "identity", &r.Identity, []Identity{IdentityAuto, IdentitySerial, IdentityPort, IdentityName},
			"what the ID of a USB device or a CDI device is made of")
		words(
			t,
			"register",
			&r.Register,
			[]Register{RegisterWhenPresent, RegisterAlways},
			"when the resource is registered with the kubelet",
		)
		words(t, "api", &r.API, apis, "by which API of the kubelet the resource is offered")
		t.key("attributes", stringTable, func(v value) {
			r.Attributes = v.claimAttributes()
		},
			"with dra: attributes of each device by which claims select")
		t.key("evict_after", stringForm, func(v value) {
			r.EvictAfter = v.evictAfter()
		},
			"with dra: how long a device is gone before pods with a claim to it are evicted")
		t.duration("forget_after", &r.ForgetAfter, minForgetAfter, `"10m" or "1h30m"`,
			"how long a device that is gone, and that no container holds, stays listed as Unhealthy")
		t.table("health", func(v value) {
			r.Health = readHealth(v)
		}, "{ open = true }", "checks of each device beyond its presence")
		t.table("container", func(v value) {
			r.Container.read(v)
		}, `{ path = "/dev/zigbee" }`, "what a container gets")
	})
	if m := v.child("match"); m.isEmpty() && len(r.Match) == 0 && v.has("match") {
		m.report("the list is empty: want at least one match", matchHint)
	}
	if v.r.allCDI || r.API == APIDRA { // which has no other injection
		r.Container.CDI = true
		r.Container.AutoCDI = false
	}
	if v.lacks("each") {
		r.Each = v.defaultEach(&r)
	}
	v.checkResource(&r)
	v.checkTexts(&r, sound)
	if r.GroupBy != "" {
		r.Variables = append(r.Variables, r.GroupBy)
	}
	return r
}

const (
	decimal = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz" + decimal
	alnum   = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// consists reports whether s is not empty and has only these characters.
func consists(s, characters string) bool { return s != "" && strings.Trim(s, characters) == "" }

// isIdentifier reports whether s has letters, digits and "_", and does not begin with a
// digit.
func isIdentifier(s string) bool {
	return consists(s, alnum+"_") && !strings.Contains(decimal, s[:1])
}

// isName reports whether s is a name of the API server without a domain, of any length:
// letters and digits around letters, digits, "-", "_" and "."
// (k8s.io/apimachinery/pkg/util/validation).
func isName(s string) bool { return consists(s, alnum+"-_.") && strings.Trim(s, "-_.") == s }

// isSubdomain reports whether s is a DNS subdomain, likewise.
func isSubdomain(s string) bool {
	return !slices.ContainsFunc(strings.Split(s, "."), func(label string) bool {
		return !consists(label, lower+"-") || strings.Trim(label, "-") != label
	})
}

const (
	maxNamePart = 63
	// maxSubdomain is that of Kubernetes; maxDomain leaves room for the "requests."
	// that quota prepends to a resource name, which has to be valid too
	// (IsExtendedResourceName in k8s.io/kubernetes/pkg/apis/core).
	maxSubdomain = 253
	maxDomain    = maxSubdomain - len("requests.")
)

// checkDomain returns the rule that the prefix of a resource name violates, or empty.
func checkDomain(domain string) (rule, hint string) {
	switch {
	case !isSubdomain(domain):
		return `is not a DNS subdomain: want lower-case letters, digits, "-" and ".", such as "example.com"`, ""
	case len(domain) > maxDomain:
		return "is too long: the domain of a resource has at most 244 characters", ""
	case strings.HasSuffix(domain, "kubernetes.io"):
		return "is reserved for Kubernetes: use a domain of your own", ""
	case strings.HasPrefix(domain, "requests."):
		return `is reserved for quota: a domain must not begin with "requests."`, ""
	}
	return "", ""
}

// checkNamePart returns the rule that the part of a resource name after the domain
// violates, or empty.
func checkNamePart(name string) string {
	if !isName(name) {
		return `is not a valid resource name: it must consist of letters, digits, "-", "_" and ".", and begin and end with a letter or digit`
	} else if len(name) > maxNamePart {
		return "is too long: a resource name has at most 63 characters after the domain"
	}
	return ""
}

// checkKind returns the rule that a resource name violates as the kind of a CDI spec,
// or empty: there vendor and class start with a letter.
func checkKind(domain, name string) string {
	if parser.ValidateVendorName(domain) != nil || parser.ValidateClassName(name) != nil {
		return "cannot be the kind of a CDI spec: with container.cdi = true, domain and name must begin with a letter"
	}
	return ""
}

// resourceName completes the name with the domain of the configuration.
func (v value) resourceName(r *Resource) {
	text := v.text(resourceName)
	s, isString := v.raw.(string)
	if !isString || text == nil && s != "" {
		return
	}
	// Check the literal parts, with a letter for each variable: its value is made valid
	// later.
	domain, name, own := strings.Cut(sampleName(text), "/")
	if !own {
		domain, name = v.r.domain.value, domain
	}
	if rule := checkNamePart(name); rule != "" {
		v.report(quote(s)+" "+rule, "")
		return
	}
	switch {
	case own && (text[0].Var != "" || !strings.Contains(text[0].Literal, "/")):
		v.report(quote(s)+" has a variable in its domain: variables are only allowed after the domain", "")
		return
	case own:
		if rule, hint := checkDomain(domain); rule != "" {
			v.report(quote(s)+": the domain "+rule, hint)
			return
		}
		text = append(device.Literal(strings.TrimPrefix(text[0].Literal, domain+"/")), text[1:]...)
	case domain == "":
		if !v.r.undecided {
			v.r.undecided = true // reported once
			v.report(quote(s)+" has no domain: set domain at the top of the file, or write it in the name",
				`write domain = "example.com" above the first [[resource]]`)
		}
		return
	}
	v.needsDomain(domain)
	r.Name = domain + "/" + text.String()
	if len(text.Vars()) > 0 {
		r.NameText = text
	}
}

// sampleName is a name with a letter in place of each variable.
func sampleName(text device.Text) string {
	return text.Expand(func(string) (string, bool) {
		return "x", true
	}).String()
}

// resourceNames reads the table of results of a name with variables and their nicer
// names.
func (v value) resourceNames(r *Resource) {
	if len(r.NameText) == 0 && r.Name != "" {
		v.report("requires a variable in name", `name = "${pci.vendor}" gives each vendor a resource of its own`)
		return
	}
	results := allResults(r.NameText)
	for result, e := range v.userKeys(`such as { "10de" = "nvidia" }`, "a result of name") {
		name, ok := e.literal(`a name such as "gpu"`)
		if !ok {
			continue
		}
		if rule := checkNamePart(name); rule != "" {
			e.report(quote(name)+" "+rule, "")
			continue
		}
		key := v.key(result)
		at := 0
		if strings.ContainsAny(result, `*?[{\`) {
			_, n := key.find()
			at = n.at
		} else if r.Name != "" && !results.Match(result) {
			key.report(quote(result)+" cannot result from "+quote(r.NameText.String())+": want the whole name, without the domain", "")
			continue
		}
		p := key.values(anyText)
		if p.Negative() {
			key.report(quote(result)+` begins with "!", but a negated pattern selects nothing`, "")
		}
		r.Names = append(r.Names, NicerName{p, name, result, at})
	}
	sort.SliceStable(r.Names, func(i, j int) bool { return r.Names[i].at < r.Names[j].at })
}

// allResults is a condition that all possible results of a text meet.
func allResults(text device.Text) pattern.Values {
	p := ""
	for _, part := range text {
		if p += pattern.Quote(part.Literal); part.Var != "" {
			p += "*"
		}
	}
	all, _ := pattern.Parse(pattern.Text, p) // of no name is none
	return all
}

// numaForm is "auto", "none" or a list of NUMA nodes.
func numaForm() form {
	return form{"anyOf": []form{{"enum": []string{"auto", "none"}}, {"type": "array", "items": integerForm(0, math.MaxInt32)}}}
}

// numa reads v as "auto", "none" or a list of NUMA nodes.
func (v value) numa() NUMA {
	items, isList := elements(v.raw)
	_, isString := v.raw.(string)
	switch {
	case isString:
		return NUMA{Auto: word(v, []string{"auto", "none"}) == "auto"}
	case !isList:
		v.mistyped(`"auto", "none" or a list of NUMA nodes such as [0, 1]`, "")
	case len(items) == 0:
		v.report("the list is empty: want at least one NUMA node", `"none" reports no NUMA node`)
	}
	var n NUMA
	for i, raw := range items {
		n.Nodes = append(n.Nodes, int(v.item(i, raw).integer(0, math.MaxInt32)))
	}
	slices.Sort(n.Nodes)
	n.Nodes = slices.Compact(n.Nodes)
	return n
}

// groupVariable reads v as a variable whose equal values group hardware.
func (v value) groupVariable() string {
	const want = `a variable such as "usb.serial" or "pci.slot"`
	return v.checked(want, func(s string) (rule, hint string) {
		if name, ok := strings.CutPrefix(s, "${"); ok {
			return "is not the name of a variable: want the name without ${}", didYouMean(strings.TrimSuffix(name, "}"))
		}
		rule, hint = v.r.checkVariable(s)
		known, _ := variableNamed(s)
		if rule == "" && (!known.device || known.single || strings.HasPrefix(s, varPrefix)) {
			rule = "is not a property that several devices share: want " + want
		}
		return rule, strings.NewReplacer("${", "", "}", "").Replace(hint)
	})
}

func readWhen(v value) *When {
	w := new(When)
	v.read(func(t *table) {
		t.values("node_name", &w.NodeName, anyText, "name of the Kubernetes node; needs --node-name")
		t.values(
			"exists",
			&w.Exists,
			existsGlob,
			`globs below /dev or /sys: each has to match something, with "!" nothing`,
		)
	})
	if v.isEmpty() {
		v.report("the table is empty: want at least one of node_name and exists", "")
	}
	return w
}

const (
	// minInterval: no check of a device takes longer.
	minInterval     = 5 * time.Second
	defaultInterval = 30 * time.Second
)

func readHealth(v value) *Health {
	h := &Health{Interval: defaultInterval}
	sound := v.read(func(t *table) {
		t.boolean("open", &h.Open, "whether each node of a device can be opened for reading")
		t.attributes("attr", &h.Attr, plainAttribute, "sysfs attributes and their values")
		t.text("tcp", &h.TCP, tcpAddress, "HOST:PORT that accepts TCP connections")
		t.duration("interval", &h.Interval, minInterval, `"30s" or "2m"`, "time between two checks of a device")
	})
	if sound && !h.Open && v.lacks("attr") && v.lacks("tcp") {
		v.report("checks nothing: want at least one of open, attr and tcp", "health.open = true checks that the nodes can be opened")
	}
	return h
}

// addressForm checks a TCP address, except for a port that is a variable.
func addressForm(written, sample string) (rule, hint string) {
	if i := strings.LastIndexByte(sample, ':'); i >= 0 && !strings.HasSuffix(written, sample[i:]) {
		sample = sample[:i] + ":1"
	}
	err := CheckAddress(sample)
	if err == nil {
		return "", ""
	}
	return err.Error() + `: want one such as "10.0.0.5:554" or "[fd00::5]:554"`, ""
}

// CheckAddress returns an error unless address is HOST:PORT with a host and a port
// number. Its text continues the quoted address.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.ContainsFunc(host, notInHost) {
		return errors.New("is not HOST:PORT")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("has no port from 1 to 65535")
	}
	return nil
}

// notInHost are characters that neither a host name nor an address contains.
func notInHost(r rune) bool {
	return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune("/@?#[]", r)
}

const (
	defaultEvictAfter = 5 * time.Minute
	never             = "never"
	// maxAttributes leaves room for the hardware's: a device in a ResourceSlice has at
	// most 32.
	maxAttributes    = 20
	maxAttributeName = 32
)

var apis = []API{APIDevicePlugin, APIDRA}

// reservedAttributes are on every device.
var reservedAttributes = []string{"id", "resource"}

// claimAttributes reads v as a table of attributes, by name.
func (v value) claimAttributes() (all []Attribute) {
	for name, e := range v.userKeys("of strings", "the name of an attribute") {
		switch {
		case slices.Contains(reservedAttributes, name):
			e.report(quote(name)+" is reserved: every device has this attribute", "")
		case !isIdentifier(name) || len(name) > maxAttributeName:
			e.report(quote(name)+` is not a valid attribute name: it must consist of letters, digits and "_", not begin with a digit, and have at most 32 characters`, "")
		case len(all) == maxAttributes:
			v.report(fmt.Sprintf("the table has more than %d attributes", maxAttributes), "")
			return all
		}
		all = append(all, Attribute{name, e.text(attributeValue)})
	}
	return all
}

// evictAfter reads v as a duration, or "never", which is negative.
func (v value) evictAfter() time.Duration {
	if v.raw == never {
		return -1
	}
	return v.duration(time.Second, `"30s", "5m" or "never"`)
}
