// The address names the project, so that a reload or a bookmark shows it again.
(name) => {
  const address = new URL(location);
  if (name) address.searchParams.set("project", name);
  history.replaceState(history.state, "", address);
}
