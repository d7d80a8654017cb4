package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/order"
)

// Limits of a configuration: its author must not be able to exhaust the memory or time of
// the program.
const (
	// maxFileSize is the maximum size of one file in bytes, and maxSize of all files.
	maxFileSize = 1 << 20
	maxSize     = 2 << 20
	// maxKeys is the maximum number of keys and tables of a configuration.
	maxKeys = 20_000
	// maxResources is the maximum number of resources of a configuration.
	maxResources = 1000
	// maxVirtual is the maximum number of virtual devices of a configuration.
	maxVirtual = 10_000
	// maxPatterns is the maximum size of all patterns of a configuration in bytes, see
	// pattern.Values.Size. Their tokens take up to 24 times as much memory.
	maxPatterns = 512 << 10
	// maxVariables is the maximum number of variables of a text, and maxText its length:
	// no string of an environment is longer than 128 KiB (execve(2)).
	maxVariables = 100
	maxText      = 64 << 10
	// maxProblems is how many problems are reported, and maxFound how many are kept to find
	// the first of them.
	maxProblems = 100
	maxFound    = 1000
)

// Hash returns Config.Hash of these files. It covers names and texts with their lengths, so that
// different files never have the same input. The path is left out: the same text has the same hash
// wherever it is mounted.
func Hash(files []File) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%d %s %d %s", len(f.Name), f.Name, len(f.Data), f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Parse validates files that together are one configuration, in name order. The error is of type
// Problems and contains the problems of all files.
func Parse(files ...File) (*Config, error) { return new(reader).parse(files) }

// ParseForCDI is like Parse, for CDI specs without a kubelet: every resource has
// container.cdi = true.
func ParseForCDI(files ...File) (*Config, error) {
	r := reader{allCDI: true}
	return r.parse(files)
}

// reader is the state of reading one configuration.
type reader struct {
	// problems are the problems so far, at most maxFound.
	problems []Problem
	// found is the number of problems, including dropped ones.
	found int
	// needs are requests that --allow may permit.
	needs []need
	// keys caches the result of language.
	keys []string
	// domain is the domain of names without one.
	domain setting
	// api is the default of resources.
	api setting
	// domainUndecided is set if a missing domain needs no message: it may be in a part that
	// cannot be read, or it was already reported.
	domainUndecided bool
	// allCDI injects every resource by CDI names, regardless of container.cdi.
	allCDI bool
	// nodes is the number of keys and tables so far.
	nodes int
	// patterns is the size of all patterns so far.
	patterns int
	// resources are the resources of all files so far.
	resources []value
	// virtual is the number of virtual devices so far.
	virtual int
	// texts are the texts with variables of the resource that is being read.
	texts []textUse
	// matches are the matches of the resource that is being read, for positions.
	matches []value
}

// report records a problem, unless there are already many.
func (r *reader) report(p Problem) {
	r.found++
	if r.found <= maxFound {
		r.problems = append(r.problems, p)
	}
}

// parse implements Parse. A reader parses only one configuration, because its state is not reset.
// It reads all files before the first resource, since the domain and the default api may be in the
// last file.
func (r *reader) parse(files []File) (*Config, error) {
	files = slices.Clone(files)
	order.Stable(files, func(a, b File) int {
		return strings.Compare(a.Name, b.Name)
	})
	cfg := &Config{Hash: Hash(files)}
	for _, f := range files {
		cfg.Files = append(cfg.Files, f.Name)
	}
	named := make(map[string]*Resource)
	r.readTop(files)
	for _, v := range r.resources {
		cfg.starts = append(cfg.starts, v.problem(""))
		res := readResource(v)
		if other := named[res.Name]; other != nil {
			v.child("name").checkSameName(&res, other)
		}
		// The problem of a third resource with this name refers to the second one.
		if res.Name != "" {
			named[res.Name] = &res
		}
		cfg.Resources = append(cfg.Resources, res)
	}
	// Needs are not problems here: Config.Check compares them with --allow, which only some callers
	// have.
	if err := problems(r.problems, r.found); err != nil {
		return nil, err
	}
	cfg.needs = r.needs
	return cfg, nil
}

// checkSameName reports that r has the name of another resource, unless when or
// variables may distinguish them.
func (v value) checkSameName(r, other *Resource) {
	already := quote(r.Name) + " is already the name of " + other.Place
	// Which names result from the variables depends on the host.
	mayDiffer := len(r.NameText) > 0
	bothHaveWhen := other.When != nil && r.When != nil
	if !mayDiffer && !bothHaveWhen {
		v.report(already, "give one resource a list of matches, or give both a when, so that one resource is left on each node")
	}
}

// bind binds the keys of the top level of a file.
func (r *reader) bind(t *table) {
	readDomain := func(v value) {
		domain := v.checked(`a domain such as "example.com"`, checkDomain)
		r.domain.set(v, domain, "a configuration has one domain, but each name may include its own")
	}
	t.key("domain", readDomain,
		"prefix of every resource name without a domain: a DNS subdomain of your own, one for the whole configuration")
	readAPI := func(v value) {
		api := string(word(v, apis))
		r.api.set(v, api, "a configuration has one default, but each resource may set its own api")
	}
	t.keyOf("api", form{"enum": apis}, readAPI, "the API of the kubelet for resources that do not set api")
	readResources := func(v value) {
		r.resources = append(r.resources, v.resources()...)
	}
	readOne := func(v value) {
		readResource(v)
	}
	t.keyOf("resource", listOf(t.formOf(readOne)), readResources,
		"a resource that pods can request. A device goes to the first active resource, in file order, that selects it")
}

// tooManyResources is the rule for the number of resources.
func tooManyResources() string {
	return fmt.Sprintf("the configuration has more than %d resources", maxResources)
}

// resources reads v as [[resource]] tables, with their names as places.
func (v value) resources() []value {
	if _, isList := v.list(); !isList {
		v.mistyped("a list of tables", "every resource begins with a line [[resource]]")
		return nil
	}
	out := v.tables("[[resource]]")
	// Nothing is read then: a thousand further problems would hide this one.
	if len(v.r.resources)+len(out) > maxResources {
		v.report(tooManyResources())
		return nil
	}
	for i := range out {
		r := &out[i]
		// The name is shown even if it is invalid, because people search for it.
		if name, ok := r.child("name").raw.(string); ok {
			r.place += " (" + quote(name) + ")"
		}
	}
	return out
}

// setting is a key of the top level. It may be in any file, and applies to all files.
type setting struct {
	value string
	// file is the name of the file that sets it.
	file string
}

// set sets the value. It reports a second, different value; rule is the reason.
func (s *setting) set(v value, value, rule string) {
	if value == "" || value == s.value {
		return
	}
	if s.value != "" {
		v.report(quote(value) + " differs from the value in " + s.file + ": " + rule)
		return
	}
	s.value = value
	s.file = v.source.name
}

// readTop reads the top level of all files.
func (r *reader) readTop(files []File) {
	for _, f := range files {
		src, root := r.decode(f)
		// The problem is already reported. The other files are read nevertheless, to report all
		// problems at once.
		if root == nil {
			continue
		}
		// This is the only value without a value above it.
		value{r: r, source: src, node: root}.read(r.bind)
	}
	// A missing key may be in an unreadable file.
	r.domainUndecided = r.found > 0
	if len(r.resources) == 0 && !r.domainUndecided {
		p := Problem{File: "configuration", Text: "no resource: want at least one [[resource]]"}
		if len(files) == 1 {
			p.File = files[0].shown()
		}
		r.report(p)
	}
}
