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

// A problem has the line and column of its key in any notation. Each text has "wrong"
// at the expected position, and elsewhere only in strings and comments.
func TestPositions(t *testing.T) {
	t.Parallel()
	const head = "\xef\xbb\xbfdomain = \"example.com\"\n[[resource]]\nname = \"first\"\nmatch.glob = \"/dev/x\"\n[[resource]]\nname = \"x\"\neach = 'node'\n"
	for _, text := range []string{
		"match.glob = '/dev/x'\nwrong = 1",
		"match.glob = '/dev/x'\n\t'wrong' = 1",
		"match.glob = '/dev/x'\r\n  \"wr\\u006fng\" = 1",
		"match.glob = '/dev/ä' # wrong\nwrong = 1",
		"match.usb.wrong = 1",
		"match. 'usb' .wrong = 1",
		"match.usb = { id = '10c4:ea60', wrong = 1 }",
		"match = { glob = '/dev/ä', usb.wrong = 1 }",
		"match = [{ glob = '/dev/x' }, { glob = '/dev/y', wrong = 1 }]",
		"match = [\n  { glob = '/dev/x' }, # { wrong = 1 }\n  { usb = {\n    wrong = 1,\n  } },\n]",
		"match.glob = ['/dev/]', \"/dev/[ab]\\\"]\",\n]\nwrong = 1",
		"match.glob = '/dev/x'\ncontainer.env.A = '''\nwrong = 1\n'''\nwrong = 1",
		"match.glob = '/dev/x'\ncontainer.env.A = \"\"\"\n\\\"\"\" wrong = 1\n\"\"\"\"\nwrong = 1",
		"match.glob = '/dev/x'\n[resource.container]\nwrong = 1",
		"match.glob = '/dev/x'\n[resource.with]\npath = '/a'\ncontainer_path = '/b'\nwrong = 1",
		"[[resource.match]]\nglob = '/dev/x'\n[[resource.match]]\nglob = '/dev/y'\nwrong = 1",
		"[[resource.match]]\nglob = '/dev/x'\n[[ resource . match ]]\nglob = '/dev/y'\n[resource.match.usb]\nwrong = 1",
		"[[resource.match]]\nglob = '/dev/x'\n[[resource.match]]\nglob = '/dev/y'\n[resource.match.wrong]\nid = 1",
		"match.virtual = ['a', { name = 'b', wrong = 1 }]",
	} {
		text = head + text
		problems := problemsOf(t, text)
		if len(problems) != 1 {
			t.Errorf("%s\n%v", text, problems)
			continue
		}
		at := strings.LastIndex(text, "wrong")
		if at < 0 {
			at = strings.LastIndex(text, `wr\u006fng`)
		}
		if at > 0 && (text[at-1] == '\'' || text[at-1] == '"') {
			at--
		}
		line := strings.Count(text[:at], "\n") + 1
		column := len([]rune(strings.TrimPrefix(text[strings.LastIndex(text[:at], "\n")+1:at], "\xef\xbb\xbf"))) + 1
		if got, want := problems[0].Position(), fmt.Sprintf("test.toml:%d:%d", line, column); got != want {
			t.Errorf("%s\nposition %s, want %s: %v", text, got, want, problems[0])
		}
	}
}

// A missing key is reported at the header of its table, and an element of a list at the
// element.
func TestPositionsOfTables(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"domain = 'a.b'\n[[resource]]\nname = 'x'\n  [[resource]]\nmatch.usb = {}\n":                                           "test.toml:2:1 test.toml:4:3",
		"[[resource]]\nname = 'a.b/x'\neach = 'node'\nmatch = [\n  { usb = {} },\n  {},\n  5,\n]\n":                            "test.toml:6:3 test.toml:7:3",
		"[[resource]]\nname = 'a.b/x'\neach = 'node'\n[[resource.match]]\nusb = {}\n[[resource.match]]\n[resource.match.attr]": "test.toml:7:17",
		"resource = [{ name = 'a.b/x' }]": "test.toml:1:13",
		"resource = 1":                    "test.toml:1:1",
		"":                                "test.toml",
		"[[resource]]\nname = 'a.b/x'\nmatch = { glob = '/dev/x' }\n[resource.match.usb]\nid = '*'": "test.toml:4:11",
	} {
		var got []string
		for _, p := range problemsOf(t, text) {
			got = append(got, p.Position())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s\npositions %s, want %s", text, got, want)
		}
	}
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
