package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
)

// problemsOf returns the problems of a text.
func problemsOf(t *testing.T, text string) config.Problems {
	t.Helper()
	_, err := config.Parse(config.File{Name: "test.toml", Data: []byte(text)})
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("Parse() = %v, want Problems", err)
	}
	return problems
}

// The first hundred problems are reported, and the total.
func TestManyProblems(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("[[resource]]\nname = 'a.b/x'\nmatch.usb = {}\n")
	for i := range 150 {
		fmt.Fprintf(&text, "k%d = 1\n", 150-i)
	}
	problems := problemsOf(t, text.String())
	if len(problems) != 101 || problems[0].Line != 4 || problems[99].Line != 103 {
		t.Fatalf("%d problems: %v", len(problems), problems)
	}
	if got, want := problems[100].String(), "150 problems in total: only the first 100 are reported"; got != want {
		t.Errorf("the last is %q, want %q", got, want)
	}
}
