package sqldb

import (
	"regexp"
	"strconv"
)

// Query is a statement in the form in which a dialect runs it.
type Query struct {
	Text  string
	order []int // which of the arguments it takes; nil if they stay as they are
}

// Arrange returns the arguments in the order in which the text takes them.
func (q *Query) Arrange(args ...any) []any {
	if q.order == nil {
		return args
	}
	arranged := make([]any, len(q.order))
	for i, n := range q.order {
		arranged[i] = args[n]
	}
	return arranged
}

// parameter is how all texts write the first to the ninth argument.
var parameter = regexp.MustCompile(`\?([1-9])`)

// numbered leaves the parameters as they are: ?1.
func numbered(text string) Query { return Query{Text: text} }

// dollars writes parameters as $1.
func dollars(text string) Query {
	return Query{Text: parameter.ReplaceAllString(text, `$$$1`)}
}

// positional writes parameters as ?, which takes arguments in the order of the text.
func positional(text string) Query {
	q := Query{Text: parameter.ReplaceAllString(text, "?"), order: []int{}}
	for _, match := range parameter.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(match[1]) // one digit: cannot fail
		q.order = append(q.order, n-1)
	}
	return q
}
