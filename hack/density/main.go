// Command density measures how tightly Go code is packed, and fails where it is packed too
// tightly to be read: make lint runs it. A limit on lines would only cause longer lines.
//
//	go run ./hack/density [-worst N] DIR
//
// It leaves out tests, testdata, and the folders that are not part of the program. Tokens and
// comment lines are counted per line of code. These are counted per 1,000 lines of code:
// function literals on one line (closures), assignments a, b = x, y (tuples), and lines with
// three or more && and || (conditions).
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The limits for the whole program, and for the tokens of a single package.
const (
	maxTokens        = 6.6
	maxPackageTokens = 7.2
	maxClosures      = 3.0
	maxTuples        = 3.0
	maxConditions    = 1.0
	minComments      = 0.2
)

// excluded are the folders that are not part of the program.
var excluded = []string{"test", "hack", "internal/testing", "examples"}

// counts are the counts of one or more files.
type counts struct {
	code       int // lines
	comments   int // lines
	tokens     int
	closures   int
	tuples     int
	conditions int
	worst      []line
}

// line is a line of code with many tokens.
type line struct {
	place  string
	tokens int
	text   string
}

func (c *counts) add(other *counts) {
	c.code += other.code
	c.comments += other.comments
	c.tokens += other.tokens
	c.closures += other.closures
	c.tuples += other.tuples
	c.conditions += other.conditions
	c.worst = append(c.worst, other.worst...)
}

// perLine returns a count per line of code.
func (c *counts) perLine(n int) float64 { return float64(n) / float64(max(1, c.code)) }

// perThousand returns a count per 1,000 lines of code.
func (c *counts) perThousand(n int) float64 { return 1000 * c.perLine(n) }

func main() {
	worst := flag.Int("worst", 0, "print this many of the densest lines")
	flag.Parse()
	packages, err := measureTree(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "density:", err)
		os.Exit(1)
	}
	all := &counts{}
	fmt.Printf("%-34s %6s %7s %9s %7s %11s %9s\n", "", "code", "tokens", "closures", "tuples", "conditions", "comments")
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		print(name, packages[name])
		all.add(packages[name])
	}
	print("all", all)
	printWorst(all.worst, *worst)
	problems := check(packages, all)
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, "density:", problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

func print(name string, c *counts) {
	fmt.Printf("%-34s %6d %7.2f %9.1f %7.1f %11.1f %9.2f\n", name, c.code, c.perLine(c.tokens),
		c.perThousand(c.closures), c.perThousand(c.tuples), c.perThousand(c.conditions), c.perLine(c.comments))
}

// printWorst prints the n densest lines.
func printWorst(lines []line, n int) {
	slices.SortFunc(lines, func(a, b line) int { return b.tokens - a.tokens })
	for _, l := range lines[:min(n, len(lines))] {
		fmt.Printf("%4d %s\t%s\n", l.tokens, l.place, l.text)
	}
}

// check returns the limits that are exceeded.
func check(packages map[string]*counts, all *counts) []string {
	var problems []string
	atMost := func(name, what string, is, limit float64) {
		if is > limit {
			problems = append(problems, fmt.Sprintf("%s: %.2f %s, at most %.1f are allowed", name, is, what, limit))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		c := packages[name]
		atMost(name, "tokens per line", c.perLine(c.tokens), maxPackageTokens)
	}
	atMost("all", "tokens per line", all.perLine(all.tokens), maxTokens)
	atMost("all", "closures on one line per 1,000 lines", all.perThousand(all.closures), maxClosures)
	atMost("all", "tuple assignments per 1,000 lines", all.perThousand(all.tuples), maxTuples)
	atMost("all", "lines with three or more && and || per 1,000 lines", all.perThousand(all.conditions), maxConditions)
	if comments := all.perLine(all.comments); comments < minComments {
		problems = append(problems, fmt.Sprintf("all: %.2f comment lines per line of code, at least %.1f are required", comments, minComments))
	}
	return problems
}

// measureTree returns the counts of the packages below a directory, by their folders.
func measureTree(root string) (map[string]*counts, error) {
	packages := map[string]*counts{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			isHidden := strings.HasPrefix(entry.Name(), ".") && path != root
			if isHidden || entry.Name() == "testdata" || slices.Contains(excluded, name) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		c, err := measure(path)
		if err != nil {
			return err
		}
		folder := filepath.Dir(name)
		if packages[folder] == nil {
			packages[folder] = &counts{}
		}
		packages[folder].add(c)
		return nil
	})
	return packages, err
}

// measure returns the counts of a file.
func measure(path string) (*counts, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	c := &counts{}
	c.addLines(path, source)
	ast.Inspect(file, func(n ast.Node) bool {
		c.addNode(set, n)
		return true
	})
	return c, nil
}

// addLines counts lines, tokens and conditions.
func (c *counts) addLines(path string, source []byte) {
	set := token.NewFileSet()
	file := set.AddFile(path, -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	tokens := map[int]int{} // by line
	operators := map[int]int{}
	comments := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		isAutomatic := tok == token.SEMICOLON && literal == "\n"
		if isAutomatic {
			continue
		}
		first := file.Line(pos)
		last := first + strings.Count(literal, "\n") // of a raw string or a comment
		if tok == token.COMMENT {
			for n := first; n <= last; n++ {
				comments[n] = true
			}
			continue
		}
		if tok == token.LAND || tok == token.LOR {
			operators[first]++
		}
		for n := first; n <= last; n++ {
			tokens[n]++
		}
		c.tokens++
	}
	c.code += len(tokens)
	for n := range comments {
		if tokens[n] == 0 {
			c.comments++
		}
	}
	for _, n := range operators {
		if n >= 3 {
			c.conditions++
		}
	}
	text := strings.Split(string(source), "\n")
	for n, count := range tokens {
		c.worst = append(c.worst, line{
			place:  fmt.Sprintf("%s:%d", path, n),
			tokens: count,
			text:   strings.TrimSpace(text[n-1]),
		})
	}
}

// addNode counts a closure or a tuple assignment.
func (c *counts) addNode(set *token.FileSet, node ast.Node) {
	switch n := node.(type) {
	case *ast.FuncLit:
		first := set.Position(n.Body.Lbrace).Line
		last := set.Position(n.Body.Rbrace).Line
		if len(n.Body.List) > 0 && first == last {
			c.closures++
		}
	case *ast.AssignStmt:
		if len(n.Lhs) > 1 && len(n.Rhs) > 1 {
			c.tuples++
		}
	}
}
