package subject

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/dlock-go/dlock/test/harness/checkout"
)

// javaSubjects are programs of their own: they have no Open.
var javaSubjects = []Subject{
	{"redis/redisson", Peer, "Redisson's RLock, renewed by its watchdog; it does not tell its holder that the lock is lost", nil},
	{"redis/redisson-fenced", Peer, "Redisson's RFencedLock, whose token the account compares", nil},
	{"zookeeper/curator", Peer, "Curator's InterProcessMutex; its users do not trust it while the connection is suspended", nil},
}

// javaProgram is the class that is the process of a subject.
type javaProgram struct {
	suite string // of test/interop
	class string
	args  []string
}

var javaPrograms = map[string]javaProgram{
	"redis/redisson":        {"redisson", "RedissonWorker", nil},
	"redis/redisson-fenced": {"redisson", "RedissonWorker", []string{"fenced"}},
	"zookeeper/curator":     {"curator", "CuratorWorker", nil},
}

// NoJava leaves the subjects out that are written in Java.
var NoJava bool

// Missing returns why the subject cannot be played on this machine, or nil.
func (s Subject) Missing() error {
	program, ok := javaPrograms[s.Name]
	switch {
	case !ok:
		return nil
	case NoJava:
		return errors.New("it is written in Java")
	}
	_, err := program.classpath()
	return err
}

// Command returns the program of a process with this subject, and its arguments.
func (s Subject) Command() ([]string, error) {
	program, ok := javaPrograms[s.Name]
	if !ok {
		self, err := os.Executable()
		return []string{self}, err
	}
	classpath, err := program.classpath()
	if err != nil {
		return nil, err
	}
	classes, err := program.compile(classpath)
	if err != nil {
		return nil, err
	}
	command := []string{"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xmx128m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", classes + string(filepath.ListSeparator) + classpath, program.class}
	return append(command, program.args...), nil
}

// classpath returns the jars of the library in the newest version that was built.
func (p javaProgram) classpath() (string, error) {
	missing := fmt.Errorf("run `scripts/build-java.sh %s`, which needs a JDK and Maven", p.suite)
	if _, err := exec.LookPath("javac"); err != nil {
		return "", missing
	}
	folder, err := checkout.Folder(".cache")
	if err != nil {
		return "", err
	}
	builds, err := filepath.Glob(filepath.Join(folder, "interop", p.suite+"-*", "classpath"))
	if err != nil || len(builds) == 0 {
		return "", missing
	}
	text, err := os.ReadFile(builds[len(builds)-1])
	return string(text), err
}

//go:embed java/*.java
var javaSources embed.FS

var compiling sync.Mutex

// compile returns the folder with the classes of the program. It is in the cache of the repository,
// with a name that changes with the sources and the jars.
func (p javaProgram) compile(classpath string) (string, error) {
	compiling.Lock()
	defer compiling.Unlock()
	sources := []string{"Worker.java", p.class + ".java"}
	hash := sha256.New()
	hash.Write([]byte(classpath))
	for _, name := range sources {
		text, err := javaSources.ReadFile("java/" + name)
		if err != nil {
			return "", err
		}
		hash.Write(text)
	}
	folder, err := checkout.Folder(filepath.Join(".cache", "lab"))
	if err != nil {
		return "", err
	}
	classes := filepath.Join(folder, p.class+"-"+hex.EncodeToString(hash.Sum(nil)[:8]))
	if _, err := os.Stat(classes); err == nil {
		return classes, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(folder, "compile-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	cmd := exec.Command("javac", "-cp", classpath, "-d", "classes")
	cmd.Dir = work
	for _, name := range sources {
		text, err := javaSources.ReadFile("java/" + name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(work, name), text, 0o644); err != nil {
			return "", err
		}
		cmd.Args = append(cmd.Args, name)
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling %s: %w\n%s", p.class, err, output)
	}
	if err := os.Rename(filepath.Join(work, "classes"), classes); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return classes, nil
}
