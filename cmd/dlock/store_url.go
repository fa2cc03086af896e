package main

import (
	"cmp"
	"slices"
	"strings"
)

// storeURL is a store URL that has been taken apart as far as all kinds share.
// It is not a net/url.URL, whose errors quote their input, password included.
type storeURL struct {
	scheme string
	rest   string // what follows "scheme:", up to the query
	query  string // what follows "?"
}

// splitStoreURL never fails: what is no URL has a scheme that no store has.
func splitStoreURL(raw string) storeURL {
	if raw == "" {
		return storeURL{scheme: "sqlite"}
	}
	scheme, rest, _ := strings.Cut(raw, ":")
	rest, query, _ := strings.Cut(rest, "?")
	return storeURL{scheme: strings.ToLower(scheme), rest: rest, query: query}
}

// whole is the URL as the stores themselves take it.
func (u storeURL) whole() string {
	raw := u.scheme + ":" + u.rest
	if u.query != "" {
		raw += "?" + u.query
	}
	return raw
}

// place is where the locks are, without secrets.
func (u storeURL) place() (hosts, path string) {
	rest := strings.TrimPrefix(u.rest, "//")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[at+1:]
	}
	hosts, path, _ = strings.Cut(rest, "/")
	return hosts, path
}

// sameHosts is the same for all spellings of a list of hosts: without what has a
// default, and whatever their order.
func sameHosts(list, defaultPort string) string {
	hosts := strings.Split(strings.ToLower(list), ",")
	for i, host := range hosts {
		hosts[i] = cmp.Or(strings.TrimSuffix(host, ":"+defaultPort), "localhost")
	}
	slices.Sort(hosts)
	return strings.Join(slices.Compact(hosts), ",")
}
