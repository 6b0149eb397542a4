// Package llm lets a language model merge the draft of an edit into the lines that it is about. The model is behind an
// endpoint that speaks OpenAI's chat completions. Without a configured endpoint nothing is sent.
package llm

import (
	"bytes"
	"context"
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
	// tries is how often a model is asked until its answer has the form that was asked for, as in OpenHands.
	tries = 3
	// timeout bounds one call.
	timeout = 2 * time.Minute
	// maxAnswer bounds the bytes that are read of one answer.
	maxAnswer = 8 << 20
)

// Config says which model merges. URL is required.
type Config struct {
	// URL is the base of the endpoint, such as https://example.com/v1; /chat/completions is added.
	URL string
	// Model is its name there; "" sends none.
	Model string
	// Key is sent as a bearer token; "" sends none.
	Key string
}

// Model merges drafts. Its methods may be called concurrently. It owns no goroutines and keeps no connections.
type Model struct {
	endpoint string
	config   Config
	client   *http.Client
}

// New returns a model. It fails if the URL is not an HTTP URL.
func New(c Config) (*Model, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("draft model: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("draft model: %q is not an http or https URL", c.URL)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	return &Model{
		endpoint: u.JoinPath("chat", "completions").String(),
		config:   c,
		client: &http.Client{
			Transport: transport, Timeout: timeout,
			// A key is for the endpoint that it was given for.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

const request = `Merge an update into a piece of a file.
The update shows how the piece should be. Where the update has a comment such as "... existing code ...", the lines of the original stay as they are.
Keep indentation, comments and everything that the update does not change. Answer with the whole piece between <updated_code> and </updated_code>, and with nothing else.

<original_code>%s</original_code>

<update_snippet>%s</update_snippet>`

var errForm = errors.New("the model did not answer in the form that was asked for; try to change fewer lines at once")

// Merge returns the lines of original with an update merged into them. ctx bounds the wait.
func (m *Model) Merge(ctx context.Context, original, update string) (string, error) {
	for range tries {
		answer, err := m.ask(ctx, fmt.Sprintf(request, original, update))
		if err != nil {
			return "", err
		}
		if merged, ok := updated(answer); ok {
			return merged, nil
		}
	}
	return "", errForm
}

// updated takes the lines out of an answer. Some models begin with a comment about their changes.
func updated(answer string) (string, bool) {
	_, rest, begun := strings.Cut(answer, "<updated_code>")
	merged, _, ended := strings.Cut(rest, "</updated_code>")
	if !begun || !ended {
		return "", false
	}
	merged = strings.TrimPrefix(merged, "\n")
	if first, lines, _ := strings.Cut(merged, "\n"); strings.HasPrefix(first, "#EDIT:") {
		merged = lines
	}
	return merged, true
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// ask sends one message and returns the answer.
func (m *Model) ask(ctx context.Context, text string) (answer string, err error) {
	body, err := json.Marshal(struct {
		Model       string    `json:"model,omitempty"`
		Messages    []message `json:"messages"`
		Temperature float64   `json:"temperature"`
	}{m.config.Model, []message{{"user", text}}, 0})
	if err != nil {
		return "", fmt.Errorf("asking the draft model: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.endpoint, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("asking the draft model: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if m.config.Key != "" {
		req.Header.Set("Authorization", "Bearer "+m.config.Key)
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return "", fmt.Errorf("asking the draft model: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("asking the draft model: it answered %s", resp.Status)
	}
	var reply struct {
		Choices []struct {
			Message message `json:"message"`
		} `json:"choices"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&reply); err != nil {
		return "", fmt.Errorf("reading the draft model's answer: %w", err)
	}
	if len(reply.Choices) == 0 {
		return "", errors.New("the draft model's answer has no choices")
	}
	return reply.Choices[0].Message.Content, nil
}
