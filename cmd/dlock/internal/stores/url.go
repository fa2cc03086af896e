package stores

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/internal/storeurl"
)

// URLError is an error in a store URL. Its text contains no password.
type URLError struct{ error }

// Unwrap returns the error of the store.
func (e *URLError) Unwrap() error { return e.error }

// URLErrorf returns a URLError.
func URLErrorf(format string, values ...any) error { return &URLError{fmt.Errorf(format, values...)} }

// OpenError says that a store cannot be used. Its text is one line without secrets.
type OpenError struct {
	shown, text string
	err         error
}

// NewOpenError returns an OpenError about the store of a URL, which is shown as shown.
func NewOpenError(shown, url string, err error) *OpenError {
	return &OpenError{shown, NewRedactor(url).Clean(oneLine(err.Error())), err}
}

func (e *OpenError) Error() string { return "cannot use " + e.shown + ": " + e.text }

// Unwrap returns the error of the store.
func (e *OpenError) Unwrap() error { return e.err }

// oneLine joins the lines of a text. Some stores return a line for each server.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' })
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return line == "" }), "; ")
}

// URL is a store URL. It is not a net/url.URL, whose errors quote what may be a password.
type URL struct {
	Scheme string
	Rest   string // between "scheme:" and the query
	Query  string // after "?"
}

// Split never fails: a text that is no URL gets a scheme that no store has.
func Split(raw string) URL {
	if raw == "" {
		return URL{Scheme: "sqlite"}
	}
	scheme, rest, _ := strings.Cut(raw, ":")
	rest, query, _ := strings.Cut(rest, "?")
	return URL{Scheme: strings.ToLower(scheme), Rest: rest, Query: query}
}

// whole returns the URL as the packages of the stores take it.
func (u URL) whole() string {
	raw := u.Scheme + ":" + u.Rest
	if u.Query != "" {
		raw += "?" + u.Query
	}
	return raw
}

// place is where the locks of a store are.
type place struct {
	*storeurl.URL
	port string // the default
}

// place returns where the locks of a valid URL are. Without a valid one it is empty.
func (u URL) place(port string) place {
	parsed, err := storeurl.Parse(u.whole(), storeurl.Scheme{Name: u.Scheme, Port: port})
	if err != nil {
		parsed = &storeurl.URL{Scheme: u.Scheme}
	}
	return place{parsed, port}
}

// opened describes what the Open of a store returned. The family is the same for all
// schemes of a store. The path and the parameters are those that distinguish locks.
func (u URL) opened(store driver.Store, err error, family string, at place, path string, parameters ...string) (*Store, error) {
	query := strings.Join(parameters, "&")
	if query != "" {
		query = "?" + query
	}
	var hosts []string
	for _, host := range at.Hosts {
		hosts = append(hosts, cmp.Or(strings.TrimSuffix(host, ":"+at.port), "localhost"))
	}
	shown := u.Scheme + "://" + strings.TrimSuffix(strings.Join(hosts, ",")+"/"+(&url.URL{Path: path}).EscapedPath(), "/") + query
	switch {
	case err == nil:
	case errors.Is(err, etcdlock.ErrURL) || family != "etcd": // the others make no calls
		return nil, &URLError{err}
	default:
		return nil, NewOpenError(shown, u.whole(), err)
	}
	slices.Sort(hosts)
	same := strings.ToLower(strings.Join(slices.Compact(hosts), ","))
	return &Store{Driver: store, URL: shown, Identity: family + ":" + same + "/" + path + query}, nil
}
