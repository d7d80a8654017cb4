package config

// form is what a value looks like, in the words of JSON Schema (draft 4).
type form map[string]any

// The forms of values. What is checked beyond them is told by the walk alone.
var (
	anyText    = form{"type": "string"}
	anyBoolean = form{"type": "boolean"}
	// conditionForm is what a key of a match is compared with, numberForm the
	// same where numbers may be bare.
	conditionForm = oneOrMore(anyText)
	numberForm    = oneOrMore(form{"type": []string{"string", "integer"}})
)

// oneOrMore is a value or a list of them.
func oneOrMore(f form) form { return eitherOf(f, listOf(f)) }

func listOf(f form) form { return form{"type": "array", "items": f} }

func eitherOf(forms ...form) form { return form{"anyOf": forms} }

// oneOfWords is one of a few words.
func oneOfWords[T ~string](words ...T) form { return form{"enum": words} }

func integerForm(lo, hi int64) form { return form{"type": "integer", "minimum": lo, "maximum": hi} }

// ownKeys is a table whose keys are the user's.
func ownKeys(f form) form { return form{"type": "object", "additionalProperties": f} }

// tableForm is a table of the kind of that name.
func tableForm(name string) form { return form{"$ref": "#/definitions/" + name} }
