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
)

// URLError is an error in a store URL. Its text contains no password.
type URLError struct{ err error }

func (e *URLError) Error() string { return e.err.Error() }

// Unwrap returns the error of the store.
func (e *URLError) Unwrap() error { return e.err }

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
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// URL is a store URL in the parts that all kinds share. It is not a net/url.URL, whose
// errors quote their input, which may be a password.
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

// place returns the hosts and the path, without user and password.
func (u URL) place() (hosts, path string) {
	rest := strings.TrimPrefix(u.Rest, "//")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[at+1:]
	}
	hosts, path, _ = strings.Cut(rest, "/")
	return hosts, path
}

// parameter returns the value of a parameter, empty if it is not given.
func (u URL) parameter(name string) string {
	query, _ := url.ParseQuery(u.Query) // the store has rejected a query that cannot be read
	return query.Get(name)
}

// opened describes what the Open of a store returned. The family is the same for all
// schemes of a store. The path and the parameters are those that distinguish locks.
func (u URL) opened(store driver.Store, err error, family, port, path string, parameters ...string) (*Store, error) {
	hosts, _ := u.place()
	query := strings.Join(parameters, "&")
	if query != "" {
		query = "?" + query
	}
	shown := u.Scheme + "://" + strings.TrimSuffix(hosts+"/"+path, "/") + query
	switch {
	case err == nil:
	case errors.Is(err, etcdlock.ErrURL) || family != "etcd": // the others make no calls
		return nil, &URLError{err}
	default:
		return nil, NewOpenError(shown, u.whole(), err)
	}
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	return &Store{Driver: store, URL: shown, Identity: family + ":" + sameHosts(hosts, port) + "/" + path + query}, nil
}

// sameHosts returns the same text for all spellings of a list of hosts: in one order and
// without the default port.
func sameHosts(list, defaultPort string) string {
	hosts := strings.Split(strings.ToLower(list), ",")
	for i, host := range hosts {
		hosts[i] = cmp.Or(strings.TrimSuffix(host, ":"+defaultPort), "localhost")
	}
	slices.Sort(hosts)
	return strings.Join(slices.Compact(hosts), ",")
}
