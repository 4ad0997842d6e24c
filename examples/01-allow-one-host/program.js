for (const url of ["https://api.example.test:8443/v1/public", "https://evil.example/", "https://192.0.2.7/"]) {
    const response = await fetch(url);
    const body = await response.json();
    console.log(response.status, response.ok ? JSON.stringify(body) : JSON.stringify(body.error ?? body));
}
