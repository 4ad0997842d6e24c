// Package freeboard runs programs behind a measured boundary, through sandboxd's freeboard.v1. Standard library only.
//
//	client, err := freeboard.NewClient("http://127.0.0.1:8746", token)
//	run, err := client.Run(ctx, freeboard.Start{Program: freeboard.Program{Python: "print(6*7)"}, MinimumIsolation: "container"})
//	fmt.Printf("%s", run.Result.Steps[0].Stdout)
//
// An answer counts only when it is bound to its request by the request id, when its record is that of what was sent and what
// came back, and when the measured tier is at least the one asked for.
package freeboard

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	maxAnswerBytes = 32 << 20
	// An exchange waits this long at most; longer waits are several exchanges.
	longestWaitMs = 30_000
	tries         = 5
	// Standard input in one message.
	maxStdinBytes = 1 << 20
)

var tiers = []string{"process", "container", "kernel", "vm"}

// Program is what is to be run; exactly one field is set.
type Program struct {
	JavaScript string   `json:"javascript,omitempty"`
	Python     string   `json:"python,omitempty"`
	Shell      string   `json:"shell,omitempty"`
	Command    []string `json:"command,omitempty"`
	Steps      []string `json:"steps,omitempty"`
}

// File is placed in the work folder first, or was captured at the end.
type File struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
}

// Variable is one of the program's environment.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Limits are what a run must not have more of; zero is the daemon's own, and more than that is refused.
type Limits struct {
	TimeMs      uint64 `json:"timeMs,omitempty"`
	MemoryMib   uint32 `json:"memoryMib,omitempty"`
	Pids        uint32 `json:"pids,omitempty"`
	OutputBytes uint64 `json:"outputBytes,omitempty"`
}

// Stdin is standard input from the start; when it is open, more follows with Write.
type Stdin struct {
	Data []byte `json:"data,omitempty"`
	Open bool   `json:"open,omitempty"`
}

// Start asks for a run.
type Start struct {
	Program          Program    `json:"program"`
	Files            []File     `json:"files,omitempty"`
	Artifacts        []string   `json:"artifacts,omitempty"`
	Environment      []Variable `json:"environment,omitempty"`
	Grants           []string   `json:"grants,omitempty"`
	MinimumIsolation string     `json:"minimumIsolation,omitempty"`
	TimeoutMs        uint64     `json:"timeoutMs,omitempty"`
	Limits           *Limits    `json:"limits,omitempty"`
	Stdin            *Stdin     `json:"stdin,omitempty"`
	QueueMs          uint64     `json:"queueMs,omitempty"`
	Priority         string     `json:"priority,omitempty"`
	TraceID          string     `json:"traceId,omitempty"`
	// Key: the same Start with the same key is one run.
	Key string `json:"-"`
	// Wait: seconds that the exchange waits for the end of the run.
	Wait int `json:"-"`
}

// Run is what is known of a run.
type Run struct {
	Run           string `json:"run"`
	State         string `json:"state"`
	Executed      string `json:"executed"`
	CreatedUnixMs uint64 `json:"createdUnixMs"`
	// Caller says whose it is, where it is somebody else's.
	Caller  string   `json:"caller,omitempty"`
	Ending  string   `json:"ending"`
	Refusal *Refused `json:"refusal"`
	Result  *Result  `json:"result"`
	Record  *Record  `json:"record"`
	// Attestation is a DSSE envelope, for `sandboxd attest verify` or another verifier.
	Attestation json.RawMessage `json:"attestation,omitempty"`
}

// Result is what came of a run that was released.
type Result struct {
	Steps              []Step    `json:"steps"`
	Detail             string    `json:"detail"`
	Artifacts          []File    `json:"artifacts"`
	ArtifactsTruncated bool      `json:"artifactsTruncated"`
	Evidence           []Fact    `json:"evidence"`
	Requests           *Requests `json:"requests"`
	RefusedRequests    []Request `json:"refused"`
	Stdin              *Taken    `json:"stdin"`
	DurationMs         uint64    `json:"durationMs"`
}

// Request is one that the broker did not let through, or that failed.
type Request struct {
	Verdict string `json:"verdict"`
	Method  string `json:"method"`
	Host    string `json:"host"`
	Path    string `json:"path"`
	Reason  string `json:"reason"`
}

// Taken is standard input as it was taken from the caller.
type Taken struct {
	Bytes  uint64 `json:"bytes"`
	Sha256 string `json:"sha256"`
}

// Step is what one step wrote and how it ended.
type Step struct {
	Command         string `json:"command"`
	ExitCode        int    `json:"exitCode"`
	Stdout          []byte `json:"stdout"`
	Stderr          []byte `json:"stderr"`
	StdoutTruncated bool   `json:"stdoutTruncated"`
	StderrTruncated bool   `json:"stderrTruncated"`
	TimedOut        bool   `json:"timedOut"`
	DurationMs      uint64 `json:"durationMs"`
}

// Fact is one thing that was measured before release.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Met   bool   `json:"met"`
}

// Requests are decisions of the broker.
type Requests struct {
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
	Failed  uint64 `json:"failed"`
	Shed    uint64 `json:"shed"`
}

// Record is what a run promises to have been.
type Record struct {
	Version       int    `json:"version"`
	Run           string `json:"run"`
	RequestSha256 string `json:"requestSha256"`
	ResultSha256  string `json:"resultSha256"`
	Provider      string `json:"provider"`
	Isolation     string `json:"isolation"`
	Environment   string `json:"environment"`
	Policy        string `json:"policy"`
	StartedUnixMs uint64 `json:"startedUnixMs"`
	EndedUnixMs   uint64 `json:"endedUnixMs"`
	RecordSha256  string `json:"recordSha256"`
}

// Watched is output after a place.
type Watched struct {
	State     string   `json:"state"`
	Output    []Output `json:"output"`
	Next      uint64   `json:"next"`
	Truncated bool     `json:"truncated"`
}

// Output is a piece of a stream, stdout or stderr.
type Output struct {
	Stream string `json:"stream"`
	Data   []byte `json:"data"`
}

// Standing is how many places there are and how many of them are taken. Of RatePerMinute and MaxSessions, 0 is no limit.
type Standing struct {
	MaxConcurrent uint32 `json:"maxConcurrent"`
	Running       uint32 `json:"running"`
	Waiting       uint32 `json:"waiting"`
	RatePerMinute uint32 `json:"ratePerMinute"`
	MaxSessions   uint32 `json:"maxSessions"`
}

// CallerStanding is the standing of one caller.
type CallerStanding struct {
	Caller string   `json:"caller"`
	Scopes []string `json:"scopes"`
	Standing
}

// Standings are those of callers; Daemon is that of all together, where all were asked for.
type Standings struct {
	Daemon  *Standing        `json:"daemon"`
	Callers []CallerStanding `json:"callers"`
}

// Grant is what one grant opens; an empty floor is any.
type Grant struct {
	Grant string `json:"grant"`
	Floor string `json:"floor"`
	APIs  []struct {
		API     string   `json:"api"`
		BaseURL string   `json:"baseUrl"`
		Routes  []string `json:"routes"`
	} `json:"apis"`
}

// Refused says that nothing ran. Reason is one of request, permission, protocol, unsupported, isolation, environment, capacity.
type Refused struct {
	Code    string `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (e *Refused) Error() string {
	return fmt.Sprintf("%s: %s (nothing ran: %s)", e.Code, e.Message, e.Reason)
}

// Failed says that there is no result and that code may have run.
type Failed struct {
	Message string
	Run     *Run
}

func (e *Failed) Error() string { return e.Message + " (code may have run)" }

// Client is one daemon and one caller. Safe for concurrent use.
type Client struct {
	base, token string
	http        *http.Client
}

// NewClient takes the URL of a daemon: https, or http to this host.
func NewClient(base, token string) (*Client, error) {
	parsed, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	host := parsed.Hostname()
	loopback := host == "127.0.0.1" || host == "::1" || host == "localhost"
	if parsed.Scheme != "https" && !(parsed.Scheme == "http" && loopback) {
		return nil, errors.New("the URL is https, or http to this host")
	}
	noRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	transport := &http.Transport{Proxy: nil}
	return &Client{parsed.Scheme + "://" + parsed.Host, token, &http.Client{CheckRedirect: noRedirects, Transport: transport, Timeout: time.Minute}}, nil
}

// Start starts a run, or finds the one that the same Start with the same key started. It returns the body that was sent, too.
func (c *Client) Start(ctx context.Context, start Start) (*Run, []byte, error) {
	sent, err := json.Marshal(start)
	if err != nil {
		return nil, nil, err
	}
	run := new(Run)
	headers := map[string]string{"Prefer": fmt.Sprintf("wait=%d", start.Wait)}
	if start.Key != "" {
		headers["Idempotency-Key"] = start.Key
	}
	return run, sent, c.call(ctx, "Start", sent, headers, run)
}

// Run starts a run, waits for its end and checks its record. A lost answer is asked for again under the same key: what was
// started once is not started twice. The error is a *Refused or a *Failed, or that of the context.
func (c *Client) Run(ctx context.Context, start Start) (*Run, error) {
	if start.Key == "" {
		start.Key = randomHex()
	}
	start.Wait = longestWaitMs / 1000
	for left := tries - 1; ; left-- {
		run, sent, err := c.Start(ctx, start)
		for err == nil && run.State != "ended" {
			if _, err = c.Watch(ctx, run.Run, 1<<62, longestWaitMs); err == nil {
				run, err = c.Get(ctx, run.Run)
			}
		}
		var refused *Refused
		var failed *Failed
		switch {
		case err == nil:
			return Check(run, sent, start.MinimumIsolation)
		case errors.As(err, &refused) || errors.As(err, &failed) || ctx.Err() != nil:
			return nil, err
		case left == 0:
			return nil, &Failed{Message: "no answer from the daemon: " + err.Error()}
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// Get returns a run by its id.
func (c *Client) Get(ctx context.Context, run string) (*Run, error) {
	return c.one(ctx, "Get", map[string]any{"run": run})
}

// GetByKey returns the run that was started with this key.
func (c *Client) GetByKey(ctx context.Context, key string) (*Run, error) {
	return c.one(ctx, "Get", map[string]any{"idempotencyKey": key})
}

// Cancel ends a run; nothing of it is left when this returns.
func (c *Client) Cancel(ctx context.Context, run string) (*Run, error) {
	return c.one(ctx, "Cancel", map[string]any{"run": run})
}

// List returns the caller's runs, newest first; an empty state means all.
func (c *Client) List(ctx context.Context, state string) ([]Run, error) {
	return c.list(ctx, state, false)
}

// ListEverybody returns the runs of all callers, for one with the scope code:admin.
func (c *Client) ListEverybody(ctx context.Context, state string) ([]Run, error) {
	return c.list(ctx, state, true)
}

// Standings returns what the caller may have and has; of everybody and the daemon for one with the scope code:admin.
func (c *Client) Standings(ctx context.Context, everybody bool) (*Standings, error) {
	body, err := json.Marshal(map[string]any{"everybody": everybody})
	if err != nil {
		return nil, err
	}
	standings := new(Standings)
	return standings, c.call(ctx, "Limits", body, nil, standings)
}

// Grants returns what each of these grants opens.
func (c *Client) Grants(ctx context.Context, names ...string) ([]Grant, error) {
	body, err := json.Marshal(map[string]any{"grants": append([]string{}, names...)})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Grants []Grant `json:"grants"`
	}
	err = c.call(ctx, "Grants", body, nil, &answer)
	return answer.Grants, err
}

func (c *Client) list(ctx context.Context, state string, everybody bool) ([]Run, error) {
	asked := map[string]any{"everybody": everybody}
	if state != "" {
		asked["state"] = state
	}
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	var listed struct {
		Runs []Run `json:"runs"`
	}
	err = c.call(ctx, "List", body, nil, &listed)
	return listed.Runs, err
}

// Watch returns output after a place, waited for.
func (c *Client) Watch(ctx context.Context, run string, after, waitMs uint64) (*Watched, error) {
	body, err := json.Marshal(map[string]any{"run": run, "after": after, "waitMs": waitMs})
	if err != nil {
		return nil, err
	}
	watched := new(Watched)
	return watched, c.call(ctx, "Watch", body, nil, watched)
}

// Write gives a run that was started with open standard input more of it, from offset on, which is what was given before; it waits
// for room. A lost answer may be asked for again: nothing is taken twice. It returns the next offset, which is less than all of
// data only where the run has ended.
func (c *Client) Write(ctx context.Context, run string, offset uint64, data []byte, end bool) (uint64, error) {
	for {
		piece := data
		if len(piece) > maxStdinBytes {
			piece = data[:maxStdinBytes]
		}
		asked := map[string]any{"run": run, "offset": offset, "data": piece, "end": end && len(piece) == len(data), "waitMs": longestWaitMs}
		if len(piece) == 0 {
			delete(asked, "data") // nil is no base64
		}
		body, err := json.Marshal(asked)
		if err != nil {
			return offset, err
		}
		var written struct {
			State string `json:"state"`
			Taken uint64 `json:"taken"`
			Ended bool   `json:"ended"`
		}
		if err := c.call(ctx, "Write", body, nil, &written); err != nil {
			return offset, err
		}
		if taken := written.Taken - offset; written.Taken >= offset && taken < uint64(len(data)) {
			data = data[taken:]
		} else {
			data = nil
		}
		offset = written.Taken
		if len(data) == 0 || written.Ended || written.State == "ended" {
			return offset, nil
		}
	}
}

// Follow calls write with what the program writes, as it writes it, until it ends.
func (c *Client) Follow(ctx context.Context, run string, write func(stream string, data []byte)) error {
	for after := uint64(0); ; {
		watched, err := c.Watch(ctx, run, after, longestWaitMs)
		if err != nil {
			return err
		}
		after = watched.Next
		for _, piece := range watched.Output {
			write(piece.Stream, piece.Data)
		}
		if watched.State == "ended" {
			return nil
		}
	}
}

func (c *Client) one(ctx context.Context, procedure string, asked map[string]any) (*Run, error) {
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	run := new(Run)
	return run, c.call(ctx, procedure, body, nil, run)
}

func (c *Client) call(ctx context.Context, procedure string, body []byte, headers map[string]string, answer any) error {
	asked := randomHex()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/freeboard.v1.Runs/"+procedure, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Freeboard-Request-Id", asked)
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	if err != nil {
		return err
	}
	if echoes := response.Header.Values("Freeboard-Request-Id"); len(echoes) != 1 || echoes[0] != asked {
		return &Failed{Message: "the answer is not bound to the request"}
	}
	if len(text) > maxAnswerBytes {
		return &Failed{Message: "the answer is too large"}
	}
	if response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, answer); err != nil {
			return &Failed{Message: "the answer does not decode: " + err.Error()}
		}
		return nil
	}
	refused := Refused{Code: fmt.Sprintf("HTTP %d", response.StatusCode), Message: strings.TrimSpace(string(text))}
	_ = json.Unmarshal(text, &refused)
	refused.Reason = response.Header.Get("Freeboard-Not-Dispatched")
	if refused.Reason == "" {
		refused.Reason = response.Header.Get("Plimsoll-Not-Dispatched")
	}
	if refused.Reason == "" {
		return &Failed{Message: refused.Code + ": " + refused.Message}
	}
	return &refused
}

// Check returns the run when it has a result whose record is that of sent and of the result; else a *Refused or a *Failed.
func Check(run *Run, sent []byte, floor string) (*Run, error) {
	if run.Executed == "no" {
		if run.Refusal != nil {
			return nil, run.Refusal
		}
		return nil, &Refused{Code: "canceled", Message: "the run is " + run.Ending}
	}
	if run.Record == nil || run.Result == nil {
		message := "the run is " + run.Ending
		if run.Refusal != nil {
			message = run.Refusal.Message
		}
		return nil, &Failed{message, run}
	}
	var problems []string
	record := run.Record
	if record.Run != run.Run {
		problems = append(problems, "the record is of another run")
	}
	if digest := sha256.Sum256(sent); record.RequestSha256 != hex.EncodeToString(digest[:]) {
		problems = append(problems, "the record is of another request")
	}
	if record.ResultSha256 != ResultDigest(record.Version, run.Ending, run.Result) {
		problems = append(problems, "the result is not the one of the record")
	}
	if record.RecordSha256 != RecordDigest(record) {
		problems = append(problems, "the record does not match its own digest")
	}
	if floor != "" && rank(record.Isolation) < rank(floor) {
		problems = append(problems, "it ran at tier "+record.Isolation+", below "+floor)
	}
	if len(problems) > 0 {
		return nil, &Failed{strings.Join(problems, "; "), run}
	}
	return run, nil
}

func rank(tier string) int {
	for index, name := range tiers {
		if name == tier {
			return index
		}
	}
	return -1
}

// ResultDigest is the digest of a result and how it ended, as records of this version have it.
func ResultDigest(version int, ending string, result *Result) string {
	fields := []any{"ending", ending, "detail", result.Detail, "steps", len(result.Steps)}
	for _, step := range result.Steps {
		fields = append(fields, "step_command", step.Command, "step_exit_code", step.ExitCode, "step_timed_out", step.TimedOut,
			"step_stdout", step.Stdout, "step_stderr", step.Stderr,
			"step_stdout_truncated", step.StdoutTruncated, "step_stderr_truncated", step.StderrTruncated)
	}
	fields = append(fields, "artifacts", len(result.Artifacts))
	for _, artifact := range result.Artifacts {
		fields = append(fields, "artifact_path", artifact.Path, "artifact_content", artifact.Content)
	}
	fields = append(fields, "artifacts_truncated", result.ArtifactsTruncated, "evidence", len(result.Evidence))
	for _, fact := range result.Evidence {
		fields = append(fields, "fact_name", fact.Name, "fact_value", fact.Value, "fact_met", fact.Met)
	}
	if version > 1 {
		fields = append(fields, "requests", result.Requests != nil)
		if requests := result.Requests; requests != nil {
			fields = append(fields, "requests_allowed", requests.Allowed, "requests_denied", requests.Denied,
				"requests_failed", requests.Failed, "requests_shed", requests.Shed)
		}
		fields = append(fields, "refused", len(result.RefusedRequests))
		for _, one := range result.RefusedRequests {
			fields = append(fields, "refused_verdict", one.Verdict, "refused_method", one.Method, "refused_host", one.Host,
				"refused_path", one.Path, "refused_reason", one.Reason)
		}
		fields = append(fields, "stdin", result.Stdin != nil)
		if taken := result.Stdin; taken != nil {
			fields = append(fields, "stdin_bytes", taken.Bytes, "stdin_sha256", taken.Sha256)
		}
	}
	return digest(fmt.Sprintf("freeboard.run-result.v%d", version), fields)
}

// RecordDigest is the digest of a record: all its fields but the last.
func RecordDigest(record *Record) string {
	return digest(fmt.Sprintf("freeboard.run-record.v%d", record.Version), []any{
		"run", record.Run, "request_sha256", record.RequestSha256, "result_sha256", record.ResultSha256,
		"provider", record.Provider, "isolation", record.Isolation, "environment", record.Environment,
		"policy", record.Policy, "started_unix_ms", record.StartedUnixMs, "ended_unix_ms", record.EndedUnixMs})
}

func digest(domain string, fields []any) string {
	hash := sha256.New()
	for _, value := range append([]any{domain}, fields...) {
		raw, isBytes := value.([]byte)
		if !isBytes {
			raw = []byte(fmt.Sprint(value))
		}
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(raw)))
		hash.Write(length[:])
		hash.Write(raw)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func randomHex() string {
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		panic(err) // the operating system has no random bytes
	}
	return hex.EncodeToString(raw[:])
}
