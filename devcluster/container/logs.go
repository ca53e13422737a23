package container

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// longestLine is where a line is cut into parts, as real runtimes do.
const longestLine = 16 << 10

// ReopenSignal tells a shim that its log file was moved away.
const ReopenSignal = syscall.SIGUSR1

// LogWriter turns both output streams of a container into lines of the CRI log format.
type LogWriter struct {
	path    string
	mutex   sync.Mutex
	file    *os.File
	readers sync.WaitGroup
	writers []*os.File
}

// OpenLog opens the log file and follows the reopen signal.
func OpenLog(path string) (*LogWriter, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	writer := &LogWriter{path: path}
	if err := writer.reopen(); err != nil {
		return nil, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, ReopenSignal)
	go func() {
		for range signals {
			_ = writer.reopen()
		}
	}()
	return writer, nil
}

func (w *LogWriter) reopen() error {
	file, err := os.OpenFile(w.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.file != nil {
		w.file.Close()
	}
	w.file = file
	return nil
}

// Attach makes the log the command's output.
func (w *LogWriter) Attach(command *exec.Cmd) error {
	for stream, target := range map[string]*io.Writer{"stdout": &command.Stdout, "stderr": &command.Stderr} {
		reader, writer, err := os.Pipe()
		if err != nil {
			return err
		}
		*target = writer
		w.writers = append(w.writers, writer)
		w.readers.Add(1)
		go w.copy(stream, reader)
	}
	return nil
}

// CloseWriters closes our ends of the pipes once the command has its own.
func (w *LogWriter) CloseWriters() {
	for _, writer := range w.writers {
		writer.Close()
	}
}

// Wait returns when every process of the container has closed both streams.
func (w *LogWriter) Wait() { w.readers.Wait() }

func (w *LogWriter) copy(stream string, reader *os.File) {
	defer w.readers.Done()
	defer reader.Close()
	lines := bufio.NewReaderSize(reader, longestLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			w.write(stream, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (w *LogWriter) write(stream string, line []byte) {
	tag := " P "
	if line[len(line)-1] == '\n' {
		tag, line = " F ", line[:len(line)-1]
	}
	entry := make([]byte, 0, len(line)+64)
	entry = time.Now().UTC().AppendFormat(entry, time.RFC3339Nano)
	entry = append(entry, ' ')
	entry = append(entry, stream...)
	entry = append(entry, tag...)
	entry = append(entry, line...)
	entry = append(entry, '\n')
	w.mutex.Lock()
	defer w.mutex.Unlock()
	_, _ = w.file.Write(entry)
}
