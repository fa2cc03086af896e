package main

import (
	"os"
	"path/filepath"
	"strings"
)

// How a command line or its environment can name the store.
const (
	// storeVariable is what --store overrides.
	storeVariable = "DLOCK_STORE"
	// storeFileVariable is what --store-file overrides.
	storeFileVariable = "DLOCK_STORE_FILE"
)

// withheldScheme marks the store of the dlock exec around a command whose URL has a
// password and is therefore not in the environment.
const withheldScheme = "withheld"

// storeChoice is the store that was asked for.
type storeChoice struct {
	url  string // empty: the default
	flag bool   // it was given on the command line, and not in the environment
	file string // the absolute path of the file that has the URL; empty: none
}

// chooseStore finds out which store is meant. What is empty is refused: a lock in a
// file of this machine would exclude no process elsewhere.
func (a *app) chooseStore() (storeChoice, error) {
	variable, inEnvironment := os.LookupEnv(storeVariable)
	file, fileInEnvironment := os.LookupEnv(storeFileVariable)
	const warning = "a lock in a file of this machine would exclude nobody elsewhere"
	switch {
	case a.storeGiven() && a.storeFileGiven():
		return storeChoice{}, usagef("--store and --store-file exclude each other")
	case a.storeGiven() && a.storeURL == "":
		return storeChoice{}, usagef("--store is empty: " + warning)
	case a.storeGiven():
		return storeChoice{url: a.storeURL, flag: true}, nil
	case a.storeFileGiven():
		return a.readStoreFile("--store-file", a.storeFile, true)
	case inEnvironment && fileInEnvironment:
		return storeChoice{}, usagef("$%s and $%s are both set: unset one of them", storeVariable, storeFileVariable)
	case fileInEnvironment:
		return a.readStoreFile("$"+storeFileVariable, file, false)
	case inEnvironment && variable == "":
		return storeChoice{}, usagef("$%s is empty: %s; unset it to use the file in your state folder", storeVariable, warning)
	}
	return storeChoice{url: variable}, nil
}

// readStoreFile reads a URL from a file. What is in it is a secret from then on.
func (a *app) readStoreFile(origin, path string, flag bool) (storeChoice, error) {
	if path == "" {
		return storeChoice{}, usagef("%s is empty", origin)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return storeChoice{}, usagef("%s: %w", origin, err)
	}
	text, err := os.ReadFile(absolute)
	if err != nil {
		return storeChoice{}, usagef("%s: %w", origin, err)
	}
	url := strings.TrimSpace(string(text))
	if url == "" || strings.ContainsAny(url, "\r\n") {
		return storeChoice{}, usagef("%s: %s does not contain one store URL on one line", origin, absolute)
	}
	a.secrets.learnMore(url)
	return storeChoice{url: url, flag: flag, file: absolute}, nil
}

// handOn returns the variables with which a dlock inside of the command finds the
// same store, and no others of the kind. A password on the command line is not put
// into the environment, which is handed on to every process and often logged.
func (c storeChoice) handOn(environment []string, store *openStore) []string {
	if !c.flag && c.file == "" {
		return environment // it is there already, or the default
	}
	var child []string
	for _, entry := range environment {
		if key, _, _ := strings.Cut(entry, "="); key != storeVariable && key != storeFileVariable {
			child = append(child, entry)
		}
	}
	switch {
	case c.file != "":
		return append(child, storeFileVariable+"="+c.file)
	case hasNoSecret(c.url) && strings.HasPrefix(store.display, "sqlite:"):
		return append(child, storeVariable+"="+store.display) // whatever the folder of the command
	case hasNoSecret(c.url):
		return append(child, storeVariable+"="+c.url)
	}
	return append(child, storeVariable+"="+withheldScheme+":"+store.display)
}

// hasNoSecret reports whether a store URL that could be opened has no password, nor a
// parameter that may be one.
func hasNoSecret(raw string) bool {
	url := splitStoreURL(raw)
	if at := strings.LastIndexByte(url.rest, '@'); at >= 0 && strings.ContainsAny(strings.TrimPrefix(url.rest[:at], "//"), ":/") {
		return false
	}
	parameters := &redactor{}
	parameters.learnQuery(url.query)
	return parameters.empty()
}
